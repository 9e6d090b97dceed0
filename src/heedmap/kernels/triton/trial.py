"""Whether the kernel works on a GPU: a small problem, beside the plain formula in float64.

Triton compiles for whatever GPU there is, with what compiler and driver it finds there. Where that
fails, or gives something else, nobody is to have wrong numbers, or an error, who could do without.
"""

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from heedmap.kernels.statistics import Found, Wanted
from heedmap.masks import Causal
from heedmap.problem import Problem, make_problem

QUERIES, KEYS, TOP, PICTURE, OFFSET = 100, 150, 3, (4, 5), 30
"""More than one block of rows and of keys, none of them full."""

ERROR = 1e-4


@functools.cache
def is_right(
    statistics: Callable[..., Found], device: torch.device, dtype: torch.dtype, width: int
) -> bool:
    """Return whether statistics of inputs of this kind are right on a device; warn if not."""
    try:
        with torch.inference_mode(False), torch.no_grad():
            problem = _problem(device, dtype, width)
            weights, normalizer = _plain(problem)
            wanted = _wanted()
            found = statistics(problem, normalizer.float(), wanted)
            fault = _fault(found, _expected(weights, wanted))
    except Exception as error:  # of Triton, its compilers or its driver, none of which is ours
        fault = f"{type(error).__name__}: {error}".splitlines()[0]
    if not fault:
        return True
    warnings.warn(
        f"Triton's kernel for statistics of {dtype} does not work on {device} ({fault}); heedmap "
        "does without it, which takes longer.",
        stacklevel=2,
    )
    return False


def _problem(device: torch.device, dtype: torch.dtype, width: int) -> Problem:
    numbers = torch.Generator().manual_seed(0)
    query, key = (
        torch.randn((1, heads, positions, width), generator=numbers).to(device, dtype)
        for heads, positions in ((4, QUERIES), (2, KEYS))
    )
    made, _ = make_problem(
        query, key, None, mask=Causal(OFFSET), scale=None, soft_cap=None, bias=None, sinks=None
    )
    return made


def _plain(problem: Problem) -> tuple[Tensor, Tensor]:
    """Return weights and log-normaliser in float64."""
    every = range(4), range(QUERIES), range(KEYS)
    scores = problem.map_tensors(lambda tensor: tensor.double()).scores(*every)
    return scores.softmax(-1), scores.logsumexp(-1)


def _wanted() -> Wanted:
    rows, columns = (
        torch.arange(size) * count // size
        for size, count in zip((QUERIES, KEYS), PICTURE, strict=True)
    )
    return Wanted(True, True, TOP, (rows, columns), sums=True, maxima=True)


def _expected(weights: Tensor, wanted: Wanted) -> Found:
    assert wanted.bins is not None
    down, across = (bins.to(weights.device) for bins in wanted.bins)
    sums = weights.new_zeros((4, *PICTURE))
    maxima = weights.new_zeros((4, *PICTURE))
    for row, column in torch.cartesian_prod(*map(torch.arange, PICTURE)).tolist():
        cells = weights[:, down == row][:, :, across == column]
        sums[:, row, column], maxima[:, row, column] = cells.sum((1, 2)), cells.amax((1, 2))
    strongest = weights.topk(TOP)
    entropy = torch.special.entr(weights).sum(-1)
    return Found(weights.sum(1), entropy, strongest.values, strongest.indices, sums, maxima)


def _fault(found: Found, expected: Found) -> str:
    """Return which of the statistics are wrong, in words; nothing if none is."""
    pairs = zip(Found._fields, found, expected, strict=True)
    wrong = [
        name
        for name, one, other in pairs
        if one is None
        or other is None
        or not torch.allclose(one.double(), other.double(), atol=ERROR, rtol=ERROR)
    ]
    return f"{', '.join(wrong)} differ from float64" if wrong else ""
