"""Largest errors against float64, beside PyTorch's own attention, as a table of Markdown.

    python benchmarks/exactness.py [--lengths 128 1024 4096] [--write docs/exactness.md]

Everybody is given the same numbers, rounded to a number type; what is exact is computed from these
in float64 by the plain formula. With ``--write`` the tables go into a file, between its markers.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import heedmap
from heedmap.kernels.differentiable import KERNELS, serves

HEADS, WIDTH, TOP, PICTURE = 2, 64, 8, 16
TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
COLUMNS = (
    "output",
    "log-normaliser",
    "weights",
    "received",
    "entropy",
    "top weights",
    "picture",
)
START, END = "<!-- exactness: start -->", "<!-- exactness: end -->"

Answers = dict[str, Tensor]


def inputs(length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value of the same numbers for every type, rounded to `dtype`."""
    numbers = torch.Generator().manual_seed(length)
    query, key, value = torch.randn(
        (3, 1, HEADS, length, WIDTH), generator=numbers, dtype=torch.float64
    )
    return query.to(dtype), key.to(dtype), value.to(dtype)


def plain(query: Tensor, key: Tensor, value: Tensor) -> Answers:
    """Return what people get who write the formula and keep the matrix."""
    scores = query @ key.mT / WIDTH**0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    scores = scores.masked_fill(hidden, -torch.inf)
    weights = scores.softmax(-1)
    return {
        "output": weights @ value,
        "log-normaliser": scores.logsumexp(-1),
        "weights": weights,
        "received": weights.sum(-2),
        "entropy": torch.special.entr(weights).sum(-1),
        "top weights": weights.topk(TOP).values,
        "picture": F.adaptive_avg_pool2d(weights, PICTURE),
    }


def fused(query: Tensor, key: Tensor, value: Tensor) -> Answers:
    return {"output": F.scaled_dot_product_attention(query, key, value, is_causal=True)}


def ours(backend: str) -> Callable[[Tensor, Tensor, Tensor], Answers]:
    def answer(query: Tensor, key: Tensor, value: Tensor) -> Answers:
        output, weights = heedmap.attention(
            query, key, value, mask=heedmap.Causal(), backend=backend
        )
        weights = weights if weights.dtype == torch.float64 else weights.float()
        summary = weights.summarize(top=TOP, pool=(PICTURE, PICTURE))
        assert summary.top_weights is not None
        assert summary.pooled is not None
        return {
            "output": output,
            "log-normaliser": weights.log_normalizer,
            "weights": weights.to_dense(max_bytes=1 << 30),
            "received": summary.received,
            "entropy": summary.entropy,
            "top weights": summary.top_weights,
            "picture": summary.pooled,
        }

    return answer


def contestants(
    query: Tensor, key: Tensor, value: Tensor
) -> Iterator[tuple[str, Callable[[Tensor, Tensor, Tensor], Answers]]]:
    """Yield everybody who takes these inputs on this machine, with the name of the row."""
    _, weights = heedmap.attention(query, key, value, mask=heedmap.Causal())
    yield f"heedmap, auto ({weights.backend})", ours("auto")
    problem = weights._rule.problem  # pyright: ignore[reportAttributeAccessIssue]
    for name in KERNELS:
        if serves(name, problem, value):
            yield f"heedmap, {name}", ours(name)
    yield "PyTorch, scaled_dot_product_attention", fused
    yield "PyTorch, plain formula", plain


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).abs().max())


def rows(length: int, dtype: torch.dtype) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the name of each contestant and its largest errors by column."""
    given = inputs(length, dtype)
    exact = plain(*(tensor.double() for tensor in given))
    for name, answer in contestants(*given):
        yield name, {column: error(t, exact[column]) for column, t in answer(*given).items()}


def tables(lengths: list[int]) -> str:
    """Return a table for each number type."""
    lines = []
    for dtype in TYPES:
        lines += [f"### {str(dtype).removeprefix('torch.')}", ""]
        lines += [f"| positions | | {' | '.join(COLUMNS)} |", f"|---:|---|{'---:|' * len(COLUMNS)}"]
        for length in lengths:
            for name, errors in rows(length, dtype):
                cells = [f"{errors[c]:.1e}" if c in errors else "–" for c in COLUMNS]
                lines.append(f"| {length} | {name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def written_into(text: str, made: str) -> str:
    """Return a text with what stands between its markers replaced."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n\n{made}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 1024, 4096])
    parser.add_argument("--write", type=Path, help="a file that has the two markers")
    arguments = parser.parse_args()
    with torch.inference_mode():
        made = f"torch {torch.__version__}, causal, {HEADS} heads of width {WIDTH}.\n\n"
        made += tables(arguments.lengths)
    if arguments.write is None:
        print(made)
    else:
        text = arguments.write.read_text(encoding="utf-8")
        arguments.write.write_text(written_into(text, made), encoding="utf-8")


if __name__ == "__main__":
    main()
