"""Every flavour of map that the contract holds for, each with its own dense twin.

The twin is computed by the plain formula in float64, apart from the library.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Documents, Mask, Padding, Visible, Window

Flavour = tuple[AttentionMap, Tensor]
Operation = Callable[[Tensor], Tensor]

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 4, 9, 9, 6


@dataclass(frozen=True)
class Given:
    """The inputs of a problem, and what the plain formula makes of them."""

    query: Tensor
    key: Tensor
    value: Tensor
    options: dict[str, object]
    dense: Tensor


def given(
    mask: Mask | None = None,
    visible: Tensor | None = None,
    *,
    kv_heads: int = HEADS,
    keys: int = KEYS,
    soft_cap: float | None = None,
    bias: bool = False,
    sinks: bool = False,
) -> Given:
    generator = torch.Generator().manual_seed(7)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    query = draw(BATCH, HEADS, QUERIES, WIDTH)
    key, value = draw(BATCH, kv_heads, keys, WIDTH), draw(BATCH, kv_heads, keys, WIDTH)
    added, sink = draw(BATCH, 1, QUERIES, keys), draw(HEADS)
    shared = key.double().repeat_interleave(HEADS // kv_heads, 1)
    scores = query.double() @ shared.mT / math.sqrt(WIDTH)
    options: dict[str, object] = {"mask": mask}
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
        options["soft_cap"] = soft_cap
    if bias:
        scores = scores + added.double()
        options["bias"] = added
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    exponentials = scores.exp()
    total = exponentials.sum(-1, keepdim=True)
    if sinks:
        total = total + sink.double().exp()[:, None, None]
        options["sinks"] = sink
    dense = exponentials / total.masked_fill(total == 0, 1)
    return Given(query, key, value, options, dense)


def _ramp(offset: int = 0, keys: int = KEYS) -> Tensor:
    return torch.arange(keys)[None] <= torch.arange(QUERIES)[:, None] + offset


VALID = torch.tensor([[1] * 9, [0, 0, 1, 1, 1, 1, 0, 0, 0]])
IDS = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2], [5, 5, 6, 6, 6, 6, 6, 6, 6]])
TABLE = torch.rand(BATCH, HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(3)) > 0.6
DISTANCE = torch.arange(KEYS)[None] - torch.arange(QUERIES)[:, None]
SEEN = VALID.bool()[:, None, None]

PROBLEMS: dict[str, Callable[[], Given]] = {
    "plain": given,
    "causal": lambda: given(Causal(), _ramp()),
    "causal, more keys": lambda: given(Causal("end"), _ramp(4, 13), keys=13),
    "padded": lambda: given(Padding(VALID), SEEN),
    "padded and causal": lambda: given(Padding(VALID) & Causal(), SEEN & _ramp()),
    "windowed": lambda: given(Window(before=2, after=1), (DISTANCE >= -2) & (DISTANCE <= 1)),
    "documents": lambda: given(Documents(IDS), (IDS[:, :, None] == IDS[:, None])[:, None]),
    "table": lambda: given(Visible(TABLE), TABLE),
    "either": lambda: given(Padding(VALID) | Window(before=0), SEEN | (DISTANCE >= 0)),
    "grouped": lambda: given(Causal(), _ramp(), kv_heads=2),
    "soft cap": lambda: given(soft_cap=1.5),
    "bias": lambda: given(Causal(), _ramp(), bias=True),
    "sinks": lambda: given(Padding(VALID), SEEN, sinks=True),
}
"""Problems by what is particular about them."""


@cache
def made(name: str) -> Given:
    """Return a problem, which no test changes."""
    return PROBLEMS[name]()


def from_problem(problem: Given, backend: str) -> AttentionMap:
    inputs = problem.query, problem.key, problem.value
    return heedmap.attention(*inputs, **problem.options, backend=backend)[1]


ORDER = torch.tensor([3, 0, 2])

DERIVED: dict[str, Operation] = {
    "head mean": lambda a: a.mean(1),
    "head maximum": lambda a: a.amax(1),
    "transposed": lambda a: a.mT,
    "selected": lambda a: a[:, ORDER, 1:-1, ::2],
    "selected twice": lambda a: a[1][..., ORDER, 2:][1:],
    "stacked": lambda a: torch.stack([a, a * 2], 1),
    "joined": lambda a: torch.cat([a, a[:, :, :4]], 2),
    "computed": lambda a: (a + a.mT).clamp(max=0.9),
    "chained": lambda a: a @ a,
}
"""Maps that are made of another, and so are their twins."""


def in_full(problem: str, backend: str) -> Flavour:
    given = made(problem)
    return from_problem(given, backend), given.dense


def from_factors() -> Flavour:
    given = made("padded and causal")
    return AttentionMap.from_factors(given.query, given.key, **given.options), given.dense


def from_weights() -> Flavour:
    dense = made("padded and causal").dense
    return AttentionMap.from_weights(dense.float()), dense


def derived(name: str) -> Flavour:
    weights, dense = in_full("padded and causal", "auto")
    return DERIVED[name](weights), DERIVED[name](dense)


OTHERS: dict[str, Callable[[], Flavour]] = {
    "from factors": from_factors,
    "from weights": from_weights,
    **{name: partial(derived, name) for name in DERIVED},
}
FLAVOURS: dict[str, Callable[[], Flavour]] = {
    f"{name}, {backend}": partial(in_full, name, backend)
    for name in PROBLEMS
    for backend in ("reference", "tiles", "auto")
} | OTHERS
