"""Random problems of attention, and what the plain formula makes of them in float64.

Hypothesis draws sizes, kinds and one seed, and torch draws the numbers from that seed: so that an
example that fails shrinks to the smallest sizes and the plainest kinds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Documents, Mask, Padding, Visible, Window
from heedmap.kernels import differentiable
from heedmap.masks import Spans
from heedmap.problem import make_problem

BACKENDS = ("auto", *differentiable.KERNELS)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# Of the weights, which are made in float32; of the output, which is rounded to its number type.
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a problem."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    width: int
    value_width: int


@dataclass(frozen=True)
class Case:
    """A problem, and who sees whom in it, said once more without the library."""

    query: Tensor
    key: Tensor
    value: Tensor
    options: dict[str, Any]
    visible: Tensor

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    def serves(self, backend: str) -> bool:
        """Whether this kernel takes the problem."""
        if backend == "auto":
            return True
        usual = dict.fromkeys(("mask", "scale", "soft_cap", "bias", "sinks"))
        problem, value = make_problem(*self.inputs, **usual | self.options)
        assert value is not None
        return differentiable.serves(backend, problem, value)

    def attend(self, backend: str = "auto", **changes: Any) -> tuple[Tensor, AttentionMap]:
        """Return output and map."""
        given = {name: changes.pop(name, getattr(self, name)) for name in ("query", "key", "value")}
        return heedmap.attention(**given, **self.options | changes, backend=backend)

    def with_mask(self, mask: Mask, visible: Tensor) -> "Case":
        return replace(self, options=self.options | {"mask": mask}, visible=visible)


@dataclass(frozen=True)
class Plain:
    """What the formula gives, in float64."""

    weights: Tensor
    output: Tensor
    log_normalizer: Tensor

    @property
    def rounding(self) -> float:
        """What an output may be off where a float32 has few digits left beside large scores."""
        finite = self.log_normalizer[torch.isfinite(self.log_normalizer)]
        largest = float(finite.abs().amax()) if finite.numel() else 0.0
        return 4 * largest * torch.finfo(torch.float32).eps


def plain(case: Case) -> Plain:
    """Return softmax(cap(q · kᵀ · scale) + bias, hidden → −inf) · value, as written."""
    query, key, value = (tensor.double() for tensor in case.inputs)
    group = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(group, 1) for tensor in (key, value))
    scale = case.options.get("scale")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.mT * scale
    if (cap := case.options.get("soft_cap")) is not None:
        scores = cap * torch.tanh(scores / cap)
    if (bias := case.options.get("bias")) is not None:
        bias = bias.double()
        scores = scores + (bias[:, None] if bias.ndim == 3 else bias)
    scores = scores.masked_fill(~case.visible, -math.inf)
    joined = scores
    if (sinks := case.options.get("sinks")) is not None:
        column = sinks.double()[:, None, None].expand(*scores.shape[:2], scores.shape[2], 1)
        joined = torch.cat([scores, column], -1)
    normalizer = torch.logsumexp(joined, -1)
    weights = torch.exp(scores - normalizer.masked_fill(normalizer == -math.inf, 0)[..., None])
    return Plain(weights, weights @ value, normalizer)


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    """Compare numbers, of which both may be those of maps."""
    found, expected = (
        t.to_dense(max_bytes=1 << 24) if isinstance(t, AttentionMap) else t
        for t in (found, expected)
    )
    torch.testing.assert_close(found.double(), expected.double(), atol=tolerance, rtol=tolerance)


# Sizes at which kernels change their way: none, one, odd, and around the widths of vectors.
POSITIONS = st.sampled_from([1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 33, 65])
LENGTHS = POSITIONS | st.just(0)
WIDTHS = st.sampled_from([1, 2, 3, 4, 7, 8, 15, 16, 17, 33])
SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def sizes(draw: st.DrawFn, positions: st.SearchStrategy[int] = LENGTHS) -> Sizes:
    kv_heads = draw(st.integers(1, 2))
    return Sizes(
        batch=draw(st.integers(1, 2)),
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        queries=draw(positions),
        keys=draw(positions),
        width=draw(WIDTHS),
        value_width=draw(WIDTHS),
    )


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def laid_out(tensor: Tensor, stride: str) -> Tensor:
    """Return equal numbers that lie differently in memory."""
    batch, heads, positions, width = tensor.shape
    if stride == "heads last":
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    if stride == "positions last":
        return tensor.mT.contiguous().mT
    room = {
        "every other number": ((batch, heads, positions, 2 * width), (..., slice(None, None, 2))),
        "every third position": (
            (batch, heads, 3 * positions, width),
            (slice(None), slice(None), slice(1, None, 3)),
        ),
        "from the middle": (
            (batch, heads, positions + 3, width + 5),
            (..., slice(2, positions + 2), slice(3, width + 3)),
        ),
        "batch inside": ((heads, positions, width, batch), ()),
    }
    if stride not in room:
        return tensor
    shape, part = room[stride]
    # What lies between is NaN, so that it is noticed when it is read.
    held = torch.full(shape, math.nan, dtype=tensor.dtype)
    view = held.permute(3, 0, 1, 2) if stride == "batch inside" else held[part]
    view.copy_(tensor)
    return view


STRIDES = (
    "contiguous",
    "heads last",
    "positions last",
    "every other number",
    "every third position",
    "from the middle",
    "batch inside",
)


@st.composite
def masks(draw: st.DrawFn, size: Sizes, depth: int = 1) -> tuple[Mask | None, Tensor]:
    """Draw a mask of any kind and the table of who sees whom that it stands for."""
    whole = (size.batch, size.heads, size.queries, size.keys)
    kind = draw(
        st.sampled_from(
            ["none", "causal", "window", "padding", "documents", "spans", "table", "bare table"]
            + ["and", "or"] * depth
        )
    )
    if kind in ("and", "or"):
        one, first = draw(masks(size, depth - 1))
        other, second = draw(masks(size, depth - 1))
        if isinstance(one, Mask) and isinstance(other, Mask):
            return (one & other, first & second) if kind == "and" else (one | other, first | second)
        return one, first
    if kind == "none":
        return None, torch.ones(whole, dtype=torch.bool)
    return SIMPLE[kind](draw, size, whole)


Drawn = tuple[Any, Tensor]
Whole = tuple[int, int, int, int]


def _ahead(draw: st.DrawFn, size: Sizes) -> tuple[str | int, Tensor]:
    alignment = draw(st.sampled_from(["start", "end", -3, -1, 0, 2, 70]))
    offset = {"start": 0, "end": size.keys - size.queries}.get(str(alignment), alignment)
    assert isinstance(offset, int)
    return alignment, torch.arange(size.keys) - torch.arange(size.queries)[:, None] - offset


def _causal(draw: st.DrawFn, size: Sizes, whole: Whole) -> Drawn:
    alignment, ahead = _ahead(draw, size)
    return Causal(alignment), (ahead <= 0).expand(whole)


def _window(draw: st.DrawFn, size: Sizes, whole: Whole) -> Drawn:
    alignment, ahead = _ahead(draw, size)
    before, after = (draw(st.sampled_from([None, 0, 1, 4, 40])) for _ in range(2))
    seen = torch.ones_like(ahead, dtype=torch.bool)
    seen = seen if before is None else seen & (ahead >= -before)
    seen = seen if after is None else seen & (ahead <= after)
    return Window(alignment, before=before, after=after), seen.expand(whole)


def _padding(draw: st.DrawFn, size: Sizes, whole: Whole) -> Drawn:
    valid = bits(draw, size.batch, size.keys)
    return Padding(valid), valid[:, None, None].expand(whole)


def _documents(draw: st.DrawFn, size: Sizes, whole: Whole) -> Drawn:
    seed = draw(SEEDS)
    rows = torch.randint(0, 4, (size.batch, size.queries), generator=generator(seed))
    columns = torch.randint(0, 4, (size.batch, size.keys), generator=generator(seed + 1))
    seen = rows[:, None, :, None] == columns[:, None, None]
    return Documents(rows, columns), seen.expand(whole)


def _spans(draw: st.DrawFn, size: Sizes, whole: Whole) -> Drawn:
    shape = [draw(st.sampled_from([1, n])) for n in (size.batch, size.heads)]
    ends = [
        torch.randint(
            -2, size.keys + 3, (*shape, draw(st.sampled_from([1, size.queries]))),
            generator=generator(draw(SEEDS)),
        )
        for _ in range(2)
    ]  # fmt: skip
    valid = bits(draw, draw(st.sampled_from([1, size.batch])), size.keys)
    valid = draw(st.sampled_from([None, valid]))
    keys = torch.arange(size.keys)
    seen = (keys >= ends[0][..., None]) & (keys <= ends[1][..., None])
    seen = seen if valid is None else seen & valid[:, None, None]
    return Spans(*ends, valid), seen.expand(whole)


def _table(draw: st.DrawFn, size: Sizes, whole: Whole) -> Drawn:
    shape = [draw(st.sampled_from([1, n])) for n in whole[:3]]
    table = bits(draw, *shape, size.keys)
    return Visible(table), table.expand(whole)


def _bare_table(draw: st.DrawFn, _: Sizes, whole: Whole) -> Drawn:
    table = bits(draw, *whole)
    return table, table


SIMPLE: dict[str, Callable[[st.DrawFn, Sizes, Whole], Drawn]] = {
    "causal": _causal,
    "window": _window,
    "padding": _padding,
    "documents": _documents,
    "spans": _spans,
    "table": _table,
    "bare table": _bare_table,
}


def bits(draw: st.DrawFn, *shape: int) -> Tensor:
    share = draw(st.sampled_from([0.5, 0.0, 0.1, 0.9, 1.0]))
    return torch.rand(shape, generator=generator(draw(SEEDS))) < share


@st.composite
def cases(
    draw: st.DrawFn,
    size: Sizes | None = None,
    *,
    positions: st.SearchStrategy[int] = LENGTHS,
    extreme: bool = True,
    masked: bool = True,
    dtypes: tuple[torch.dtype, ...] = DTYPES,
) -> Case:
    """Draw a problem with everything that `heedmap.attention` takes."""
    size = draw(sizes(positions)) if size is None else size
    dtype = draw(st.sampled_from(dtypes))
    seed = draw(SEEDS)
    whole = (size.batch, size.heads, size.queries, size.keys)
    query, key, value = (
        torch.randn(shape, generator=generator(seed + place), dtype=torch.float64).to(dtype)
        for place, shape in enumerate(
            (
                (size.batch, size.heads, size.queries, size.width),
                (size.batch, size.kv_heads, size.keys, size.width),
                (size.batch, size.kv_heads, size.keys, size.value_width),
            )
        )
    )
    mask, visible = draw(masks(size)) if masked else (None, torch.ones(whole, dtype=torch.bool))
    options: dict[str, Any] = {"mask": mask}
    options["scale"] = draw(st.sampled_from([None, 0.5, 0.0, -0.7]))
    options["soft_cap"] = draw(st.sampled_from([None, None, None, 1.5]))
    if draw(st.integers(0, 3)) == 3:
        options["sinks"] = torch.randn(size.heads, generator=generator(seed + 3)).to(dtype)
    if draw(st.integers(0, 2)) == 2:
        options["bias"], visible = _bias(draw, whole, visible, dtype)
    if extreme and draw(st.integers(0, 4)) == 4:
        # Scores up to ±10 000, by one number of the head's dimension. Whole, so that they are
        # exact in every number type, and the weights with them.
        query, key = torch.zeros_like(query), torch.zeros_like(key)
        query[..., 0] = 100
        signs = torch.randint(-1, 2, key.shape[:-1], generator=generator(seed + 4))
        key[..., 0] = (signs * 100).to(dtype)
        options["scale"] = 1.0
        options["soft_cap"] = None
    query, key, value = (laid_out(t, draw(st.sampled_from(STRIDES))) for t in (query, key, value))
    return Case(query, key, value, options, visible)


def _bias(
    draw: st.DrawFn, whole: Whole, visible: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Draw scores to add, among them some or all but one −inf, and hide what these hide."""
    shape = [draw(st.sampled_from([1, n])) for n in whole]
    rank = draw(st.sampled_from([4, 2, 3]))
    shape = {4: shape, 3: [shape[0], *shape[2:]], 2: shape[2:]}[rank]
    seed = draw(SEEDS)
    # In steps that every number type has.
    bias = torch.randint(-16, 17, shape, generator=generator(seed)).double() / 8
    hides = torch.rand(shape, generator=generator(seed + 1)) < draw(
        st.sampled_from([0.0, 0.2, 1.0])
    )
    if bias.numel() and shape[-1] > 1:
        hides[..., draw(st.integers(0, shape[-1] - 1))] = False
    bias = bias.masked_fill(hides, -math.inf).to(draw(st.sampled_from([dtype, torch.float32])))
    full = hides[:, None] if rank == 3 else hides
    return bias, visible & ~full
