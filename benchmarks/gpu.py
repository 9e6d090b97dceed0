"""Output and statistics on a GPU, over PyTorch's flash kernel, which gives the output alone.

    python -m benchmarks.gpu [--million] [--json gpu.json]

bfloat16, one sample, 2048 numbers for each position: 32 heads of width 64, or 16 of width 128. In
each turn everybody runs once; a figure is the median of the ratios within the turns, by the GPU's
own clock. With ``--million`` one head of a million positions runs once as well. With ``--json`` the
figures that `benchmarks.scale` plans with go into a file.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import heedmap
from heedmap.doctor import examine

LENGTHS, WIDTHS, NUMBERS = (8192, 32768, 131072), (64, 128), 2048
MILLION = 1_000_000
PICTURE, TOP = (512, 512), 8
TURNS = 7

Call = Callable[[], object]


def flash(inputs: list[Tensor], is_causal: bool) -> Call:
    """Return a call of PyTorch's flash kernel, and of no other."""

    def call() -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(*inputs, is_causal=is_causal)

    return call


def asking(inputs: list[Tensor], is_causal: bool, summary: heedmap.Summary | None) -> Call:
    """Return a call of ours: the output alone, or with what a summary asks for."""
    options = {"mask": heedmap.Causal()} if is_causal else {}
    if summary is None:
        return lambda: heedmap.attention(*inputs, **options)
    return lambda: heedmap.attention(*inputs, **options, keep=summary)


def contestants(inputs: list[Tensor], is_causal: bool) -> dict[str, Call]:
    return {
        "output": asking(inputs, is_causal, None),
        "+ received, entropy": asking(inputs, is_causal, heedmap.Summary()),
        "+ picture": asking(inputs, is_causal, heedmap.Summary(pool=PICTURE)),
        "+ picture, top 8": asking(inputs, is_causal, heedmap.Summary(top=TOP, pool=PICTURE)),
    }


def seconds(call: Call) -> float:
    """Return how long the GPU works on a call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000


def measure(inputs: list[Tensor], is_causal: bool, turns: int = TURNS) -> dict[str, float]:
    """Return the seconds of flash, and the ratio of each of ours to it."""
    base, ours = flash(inputs, is_causal), contestants(inputs, is_causal)
    times: dict[str, list[float]] = {name: [] for name in ("flash", *ours)}
    for turn in range(turns + 1):
        taken = {"flash": seconds(base)} | {name: seconds(call) for name, call in ours.items()}
        if turn:  # in the first one, kernels are compiled and checked
            for name, time in taken.items():
                times[name].append(time)
    ratios = {
        name: statistics.median(t / f for t, f in zip(times[name], times["flash"], strict=True))
        for name in ours
    }
    return {"flash": statistics.median(times["flash"])} | ratios


def inputs_of(length: int, heads: int, width: int) -> list[Tensor]:
    torch.manual_seed(0)
    shape = (3, 1, heads, length, width)
    return list(torch.randn(shape, device="cuda", dtype=torch.bfloat16))


def operations(length: int, heads: int, width: int, is_causal: bool) -> float:
    """Return how many additions and multiplications the two products take."""
    return 4.0 * length * length * heads * width / (2 if is_causal else 1)


def peak_gib(call: Call) -> float:
    """Return the memory that is taken at most while a call runs."""
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**30


def row(length: int, heads: int, width: int, is_causal: bool, turns: int = TURNS) -> str:
    """Return a line of the table."""
    inputs = inputs_of(length, heads, width)
    found = measure(inputs, is_causal, turns)
    rate = operations(length, heads, width, is_causal) / found["flash"] / 1e12
    memory = peak_gib(list(contestants(inputs, is_causal).values())[-1])
    ratios = " | ".join(f"{found[name]:.2f}" for name in contestants(inputs, is_causal))
    kind = "causal" if is_causal else "all"
    return (
        f"| {length} | {heads} × {width} | {kind} | {1000 * found['flash']:.2f} | {rate:.0f} | "
        f"{ratios} | {memory:.2f} |"
    )


def figures() -> dict[str, float | str]:
    """Return what `benchmarks.scale` plans with, from one causal problem of width 128."""
    length, width = LENGTHS[1], 128
    heads = NUMBERS // width
    found = measure(inputs_of(length, heads, width), True)
    cells = heads * length * length / 2
    asked = found["+ received, entropy"] - found["output"]
    return {
        "device": torch.cuda.get_device_name(),
        "output_operations_per_second": operations(length, heads, width, True) / found["flash"],
        "statistics_seconds_per_cell": asked * found["flash"] / cells,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--million", action="store_true", help="a million positions once, too")
    parser.add_argument("--json", type=Path, help="where figures for benchmarks.scale go")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print(
            "benchmarks.gpu must run on a machine with a CUDA GPU; torch finds none here. Run it "
            "where there is one.",
            file=sys.stderr,
        )
        raise SystemExit(2)
    found = examine()
    print(f"{torch.cuda.get_device_name()}, torch {found['torch']}, triton: {found['triton']}\n")
    print(
        "| positions | heads × width | keys | flash, ms | TFLOP/s | output | + received, entropy "
        "| + picture | + picture, top 8 | peak, GiB |"
    )
    print("|---:|---|---|---:|---:|---:|---:|---:|---:|---:|")
    with torch.inference_mode():
        for length in LENGTHS:
            for width in WIDTHS:
                for is_causal in (False, True):
                    print(row(length, NUMBERS // width, width, is_causal), flush=True)
        if options.million:
            print(row(MILLION, 1, 128, True, turns=1), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(figures(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
