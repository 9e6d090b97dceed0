"""What was measured as a table, as JSON and as a picture."""

import json
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.contestants import THREADS
from benchmarks.problems import Problem


@dataclass(frozen=True)
class Result:
    """What one contestant needed for one problem.

    Attributes:
        problem: What was computed.
        label: Who computed it.
        seconds: The median of a call.
        ratio: That over the median of PyTorch's fused kernel.
        low: A quarter of the turns had a smaller ratio.
        high: A quarter of the turns had a larger one.
    """

    problem: Problem
    label: str
    seconds: float
    ratio: float
    low: float
    high: float


def machine() -> dict[str, Any]:
    """Return what it was measured on, and how fast that multiplies."""
    import torch

    from heedmap.doctor import examine

    names = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    torch.set_num_threads(THREADS)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": names[0] if names else platform.processor(),
        "threads": THREADS,
        **{name: examine()[name] for name in ("heedmap", "python", "torch", "cpu", "kernel")},
        "operations_per_second": _peak(),
    }


def _peak(size: int = 2048, tries: int = 8) -> float:
    """Return the multiplications and additions a second of a large product, at its best."""
    import torch

    left, right = torch.randn(2, size, size)
    best = float("inf")
    for _ in range(tries):
        began = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def write(
    folder: Path, found: dict[str, Any], results: list[Result], left_out: list[Problem]
) -> None:
    """Write the three files."""
    plain = {
        "machine": found,
        "results": [asdict(result) for result in results],
        "left_out": [asdict(problem) for problem in left_out],
    }
    (folder / "results.json").write_text(json.dumps(plain, indent=1) + "\n", "utf-8")
    (folder / "results.md").write_text(table(found, results, left_out), "utf-8")
    draw(folder / "results.png", found, results)


def table(found: dict[str, Any], results: list[Result], left_out: list[Problem]) -> str:
    """Return the results in Markdown: contestants as rows, lengths as columns."""
    told = ", ".join(f"{name} {value}" for name, value in found.items() if name[0] != "o")
    rate = found["operations_per_second"] / 1e9
    lines = [
        "# Results of `python -m benchmarks`",
        "",
        f"{told}. A large matrix product runs at {rate:.0f} GFLOP/s.",
        "",
        "Ratios to `scaled_dot_product_attention` (output alone) in the same turns: median, and "
        "in brackets the middle half. Of `attention_trained`: to its forward and backward.",
    ]
    done = dict.fromkeys(result.problem for result in results)
    for group in dict.fromkeys(_group(problem) for problem in done):
        own = [problem for problem in done if _group(problem) == group]
        lines += ["", f"## {group}", "", *_lengths(own, results)]
    if left_out:
        lines += ["", "Left out for want of time:", ""]
        lines += [f"- {title(problem)}" for problem in left_out]
    return "\n".join(lines) + "\n"


def _group(problem: Problem) -> str:
    """Return what problems of one table have in common."""
    return title(problem).split(" positions, ")[1]


def _lengths(problems: list[Problem], results: list[Result]) -> list[str]:
    """Return the table of problems that differ in length alone."""
    by_place = {(r.label, r.problem): r for r in results}
    labels = dict.fromkeys(r.label for r in results if r.problem in problems)
    lines = [
        "| | " + " | ".join(str(problem.positions) for problem in problems) + " |",
        "|---" + "|---:" * len(problems) + "|",
    ]
    for label in labels:
        cells = [_cell(by_place.get((label, problem))) for problem in problems]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def _cell(result: Result | None) -> str:
    if result is None:
        return "–"
    if result.label == "sdpa":
        return f"{1000 * result.seconds:.3g} ms"
    return f"{result.ratio:.2f} ({result.low:.2f}–{result.high:.2f})"


def title(problem: Problem) -> str:
    """Return what people call a problem.

    >>> title(Problem(4096, 8, 64, "future"))
    '4096 positions, 8 heads of width 64, the future hidden'
    """
    heads = f"{problem.heads} head{'s' if problem.heads > 1 else ''} of width {problem.width}"
    groups = f", {problem.kv_heads} of key and value" if problem.kv_heads else ""
    hidden = "" if problem.hidden == "nothing" else f", the {problem.hidden} hidden"
    return f"{problem.positions} positions, {heads}{groups}{hidden}"


DRAWN = {
    "sdpa": ("SDPA: output alone", "#555555", "-"),
    "attention": ("heedmap: output and map", "#0072b2", "-"),
    "attention_summary": ("heedmap: + received, entropy, picture", "#009e73", "-"),
    "eager": ("plain formula, matrix kept", "#d55e00", "-"),
    "onnxruntime": ("onnxruntime: output alone", "#cc79a7", "--"),
    "onnxruntime, weights returned": ("onnxruntime: weights returned", "#cc79a7", ":"),
    "jax": ("JAX: output alone", "#e69f00", "--"),
    "flex_attention, compiled": ("flex_attention, compiled", "#56b4e9", "--"),
}


def draw(file: Path, found: dict[str, Any], results: list[Result]) -> None:
    """Draw the time over the length, both logarithmic, for one head of width 64."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.subplots()
    plain = [
        r
        for r in results
        if (r.problem.heads, r.problem.width, r.problem.hidden) == (1, 64, "nothing")
    ]
    lengths: list[int] = sorted({r.problem.positions for r in plain})
    for label, (words, colour, line) in DRAWN.items():
        points = sorted((r.problem.positions, r.seconds) for r in plain if r.label == label)
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, line, color=colour, label=words, marker="o", markersize=3)
    rate = found["operations_per_second"]
    fastest = [Problem(n, 1, 64).operations / rate for n in lengths]
    axes.plot(lengths, fastest, color="#bbbbbb", label="both products at the machine's rate")
    axes.set(xscale="log", yscale="log", xlabel="positions", ylabel="seconds")
    axes.legend(fontsize=8, frameon=False)
    axes.set_title(f"One head of width 64, float32, {THREADS} threads", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)
