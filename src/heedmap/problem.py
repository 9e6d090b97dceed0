"""One attention problem, checked once and put into one form.

Everything behind this door may trust shapes, number types and devices. A `Problem` holds what
decides the weights (query, key, mask, scoring); the values that the weights gather stay outside.
It can make any block of its scores, which is all that a lazy map needs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedmap import compiled
from heedmap.errors import ArgumentError, DTypeError, UnsupportedError
from heedmap.inputs import check_inputs
from heedmap.masks import Extent, Mask, Padding, Visible, parts_of
from heedmap.places import Index, Places, as_numbers, look_up, pick
from heedmap.scoring import ScoreChange, Scoring, make_scoring
from heedmap.tensors import refuse_empty, require_numbers


@dataclass(frozen=True, eq=False)
class Problem:
    """What decides the weights of one call of attention.

    Attributes:
        query: Every query of every head.
        key: Every key; `heads` is a multiple of `kv_heads`, and neighbouring heads share.
        mask: The bound mask, or None where everything is visible.
        scoring: How a score is made of a dot product.
        clean: Whether all of query and key is finite, so that a product with a weight of 0 is 0.
        extent: Batch, heads, queries, keys.
        versions: How often what it stands on had been written into when the problem was made.
    """

    query: Float[Tensor, "batch heads query head_dim"]
    key: Float[Tensor, "batch kv_heads key head_dim"]
    mask: Mask | None
    scoring: Scoring
    clean: bool = True
    extent: Extent = field(init=False)
    versions: tuple[int, ...] = field(init=False)

    def __init__(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads key head_dim"],
        mask: Mask | None,
        scoring: Scoring,
        clean: bool = True,
    ) -> None:
        """Take down what is given, its sizes and its versions."""
        batch, heads, queries, _ = query.shape
        extent = Extent(batch, heads, queries, key.shape[2])
        known = self.__dict__
        known.update(query=query, key=key, mask=mask, scoring=scoring, clean=clean, extent=extent)
        known["versions"] = self._versions()

    def __getstate__(self) -> dict[str, object]:
        """Return what is worth saving, without what was worked out from it."""
        return {part.name: getattr(self, part.name) for part in fields(self) if part.init}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take back what was saved."""
        self.__init__(**state)

    @property
    def compute_dtype(self) -> torch.dtype:
        """The number type of scores and weights: float64 for float64, float32 for the rest."""
        return compute_dtype(self.query.dtype)

    @cached_property
    def flat_query(self) -> Float[Tensor, "matrices query head_dim"]:
        """The queries with one matrix for each sample and head."""
        return _folded(self.query)

    @cached_property
    def flat_key(self) -> Float[Tensor, "kv_matrices key head_dim"]:
        """The keys with one matrix for each sample and key head."""
        return _folded(self.key)

    def key_matrices(self, matrices: Index) -> Index:
        """Return which of `flat_key` each of these query matrices looks into."""
        heads, kv_heads = self.query.shape[1], self.key.shape[1]
        if heads == kv_heads:
            return matrices
        numbers = as_numbers(matrices, self.query.device)
        return numbers // heads * kv_heads + numbers % heads // (heads // kv_heads)

    def sink_column(self, matrices: Index) -> Float[Tensor, "matrices 1"]:
        """Return the sink of each of these matrices."""
        assert self.scoring.sinks is not None
        numbers = as_numbers(matrices, self.query.device)
        return self.scoring.sinks[numbers % self.extent.heads][:, None]

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors that a weight may depend on smoothly."""
        given = self.query, self.key
        given += () if self.scoring.bias is None else (self.scoring.bias,)
        return given if self.scoring.sinks is None else (*given, self.scoring.sinks)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> "Problem":
        """Return the same problem with `change` done to each of `tensors`, in their order."""
        self.require_unchanged()
        query, key = change(self.query), change(self.key)
        bias, sinks = self.scoring.bias, self.scoring.sinks
        scoring = replace(
            self.scoring,
            bias=None if bias is None else change(bias),
            sinks=None if sinks is None else change(sinks),
        )
        mask = self.mask
        if mask is not None and query.device != self.query.device:
            mask = mask.to(query.device)
        return replace(self, query=query, key=key, scoring=scoring, mask=mask)

    def require_unchanged(self) -> None:
        """Refuse to go on if a factor was written into since: the weights would be wrong.

        Tensors made in inference mode do not keep count, so they cannot be checked.
        """
        if self.versions != self._versions():
            raise UnsupportedError(
                "query, key, bias, sinks and table must not be written into while their map is in "
                "use; one was, or memory that it shares. Give clones to attention or "
                "from_factors, or read the map before."
            )

    def _versions(self) -> tuple[int, ...]:
        given = self.tensors()
        if self.mask is not None and type(self.mask) is not Padding:
            given += tuple(part.table for part in parts_of(self.mask) if type(part) is Visible)
        return tuple([-1 if tensor.is_inference() else tensor._version for tensor in given])

    def visible(
        self, matrices: Index, rows: Index, columns: Index
    ) -> Bool[Tensor, "#matrices #rows #columns"] | None:
        """Return which pairs of a block the mask shows, or None when it shows them all."""
        if self.mask is None or not (len(matrices) and len(rows) and len(columns)):
            return None
        if isinstance(rows, range) and isinstance(columns, range):
            ends = min(rows), max(rows), min(columns), max(columns)
            if self.mask.covers(*ends):
                return None
        return self.mask.tile(self.places(matrices, rows, columns))

    def scores(
        self, matrices: Index, rows: Index, columns: Index
    ) -> Float[Tensor, "matrices rows columns"]:
        """Return a block of scores, −inf where not visible.

        Cost: O(matrices · rows · columns · head_dim) time, the block itself in memory.
        """
        query = pick(pick(self.flat_query, matrices, 0), rows, 1).to(self.compute_dtype)
        key = pick(pick(self.flat_key, self.key_matrices(matrices), 0), columns, 1)
        key = key.to(self.compute_dtype)
        if self.clean:
            scores = torch.bmm(query * self.scoring.scale, key.mT)
        else:
            # A NaN must stay in its own row and column: 0 · NaN would carry it on in the gradient.
            spoilt = _is_spoilt(query)[:, :, None] | _is_spoilt(key)[:, None, :]
            scores = torch.bmm(finite(query) * self.scoring.scale, finite(key).mT)
            scores = scores.masked_fill(spoilt, torch.nan)
        if self.scoring.soft_cap is not None:
            scores = torch.tanh(scores / self.scoring.soft_cap) * self.scoring.soft_cap
        if self.scoring.bias is not None:
            bias = look_up(self.scoring.bias, self.places(matrices, rows, columns))
            scores = _biased(scores, bias)
        if self.scoring.change is not None:
            scores = self.scoring.change(scores, self.places(matrices, rows, columns))
        visible = self.visible(matrices, rows, columns)
        return scores if visible is None else scores.masked_fill(~visible, -torch.inf)

    def cell_scores(
        self, matrices: Tensor, rows: Tensor, columns: Tensor
    ) -> Float[Tensor, " cells"]:
        """Return the scores of single cells, given by three number tensors of equal length."""
        query = self.flat_query[matrices, rows].to(self.compute_dtype)
        key = self.flat_key[self.key_matrices(matrices), columns].to(self.compute_dtype)
        if self.clean:
            scores = (query * self.scoring.scale * key).sum(-1)
        else:
            spoilt = _is_spoilt(query) | _is_spoilt(key)
            scores = (finite(query) * self.scoring.scale * finite(key)).sum(-1)
            scores = scores.masked_fill(spoilt, torch.nan)
        if self.scoring.soft_cap is not None:
            scores = torch.tanh(scores / self.scoring.soft_cap) * self.scoring.soft_cap
        places = Places.of_cells(matrices, self.extent.heads, rows, columns)
        if self.scoring.bias is not None:
            scores = _biased(scores, look_up(self.scoring.bias, places))
        if self.scoring.change is not None:
            scores = self.scoring.change(scores, places)
        if self.mask is None:
            return scores
        return scores.masked_fill(~self.mask.tile(places), -torch.inf)

    def key_range(self, rows: Index) -> tuple[int, int]:
        """Return the start and stop of the keys outside which these rows see nothing."""
        if self.mask is None or not len(rows):
            return 0, self.extent.keys
        ends = (min(rows), max(rows)) if isinstance(rows, range) else torch.aminmax(rows)
        return self.mask.key_range(int(ends[0]), int(ends[1]), self.extent.keys)

    def places(self, matrices: Index, rows: Index, columns: Index) -> Places:
        """Return where a block lies."""
        device = self.query.device
        return Places.of_block(
            as_numbers(matrices, device),
            self.extent.heads,
            as_numbers(rows, device),
            as_numbers(columns, device),
        )


def make_problem(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    *,
    mask: Mask | Tensor | None,
    scale: float | None,
    soft_cap: float | None,
    bias: Tensor | None,
    sinks: Tensor | None,
    change: ScoreChange | None = None,
) -> tuple[Problem, Tensor | None]:
    """Return the checked problem and the value in the same form, four-dimensional.

    Where anything is NaN, infinite or huge, padded slots of key and value are set to 0.

    Raises:
        DTypeError: for number types that are not floating point or not the same.
        ShapeError: for sizes that do not fit.
        ArgumentError: for a mask, scale, cap, bias or sinks that make no sense.
        UnsupportedError: under ``torch.func.vmap``.
    """
    check_inputs(query, key, value)
    for name, given in (("bias", bias), ("sinks", sinks)):
        if given is not None:
            require_numbers(name, given)
    if not torch.is_grad_enabled():
        # What is made without gradients stays so, as a tensor of weights would.
        query, key = _without_gradient(query), _without_gradient(key)
        bias = None if bias is None else _without_gradient(bias)
        sinks = None if sinks is None else _without_gradient(sinks)
    query, key = _four_dimensional(query), _four_dimensional(key)
    value = None if value is None else _four_dimensional(value)
    batch, heads, queries, _ = query.shape
    extent = Extent(batch, heads, queries, key.shape[2])
    bound = _bind(mask, extent)
    scoring = make_scoring(
        head_dim=query.shape[3],
        sizes=extent,
        scale=scale,
        soft_cap=soft_cap,
        bias=bias,
        sinks=sinks,
        change=change,
        dtype=compute_dtype(query.dtype),
    )
    hides = bound is not None or scoring.bias is not None or change is not None
    if not hides or _are_tame(query, key, value):
        return Problem(query, key, bound, scoring), value
    for part in parts_of(bound):
        if isinstance(part, Padding):
            valid = part.valid[:, None, :, None]
            key = torch.where(valid, key, 0)
            value = None if value is None else torch.where(valid, value, 0)
    return Problem(query, key, bound, scoring, all_finite(query) and all_finite(key)), value


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the number type in which scores and weights of `dtype` inputs are computed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _without_gradient(tensor: Tensor) -> Tensor:
    return tensor.detach() if tensor.requires_grad else tensor


def _folded(tensor: Tensor) -> Tensor:
    """Return one matrix for each sample and head, fit to be kept.

    The first to ask may stand in a block without gradients, the next one may need them.
    """
    with torch.inference_mode(False), torch.enable_grad():
        return tensor.flatten(0, 1)


def _four_dimensional(tensor: Tensor) -> Tensor:
    if tensor.ndim == 4:
        return tensor
    return tensor[None, None] if tensor.ndim == 2 else tensor.unsqueeze(1)


def _bind(mask: Mask | Tensor | None, extent: Extent) -> Mask | None:
    if isinstance(mask, Tensor):
        mask = _named(mask, extent)
    if mask is None:
        return None
    if not isinstance(mask, Mask):
        raise ArgumentError(
            "mask must be a mask such as Padding(valid) or Causal(), or a bool tensor; got "
            f"{type(mask).__name__}."
        )
    for part in parts_of(mask):
        for name, given in vars(part).items():
            if isinstance(given, Tensor):
                refuse_empty(name, given)
    return mask.bind(extent)


def _named(mask: Tensor, extent: Extent) -> Mask:
    """Return the mask that a bare tensor can only mean, or refuse to guess."""
    if mask.dtype != torch.bool:
        raise DTypeError(
            f"mask must be bool where it is a bare tensor, True for visible; got {mask.dtype}. "
            "Use Padding(valid) for a padding mask of 0 and 1, bias= for scores to add."
        )
    if tuple(mask.shape) == (extent.batch, extent.keys):
        raise ArgumentError(
            f"mask must say what it is where its shape is {list(mask.shape)}, which is "
            "[batch, key]; got a bare tensor. Use Padding(mask), or Visible(mask) for "
            "[query, key]."
        )
    return Visible(mask)


def _biased(scores: Float[Tensor, "..."], bias: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    # Added to a score that is not finite, −inf would not hide it.
    return (scores + bias).masked_fill(bias == -torch.inf, -torch.inf)


def _is_spoilt(vectors: Float[Tensor, "... dim"]) -> Bool[Tensor, "..."]:
    return ~torch.isfinite(vectors).all(-1)


def finite(vectors: Float[Tensor, "... dim"]) -> Float[Tensor, "... dim"]:
    """Return the vectors with 0 for every entry that is NaN or infinite."""
    return torch.where(torch.isfinite(vectors), vectors, 0)


def all_finite(tensor: Tensor) -> bool:
    """Return whether nothing in it is NaN or infinite (or, rarely, False for huge numbers)."""
    # A sum is not finite if anything in it is not; a sum that overflows only costs the slow way.
    return math.isfinite(tensor.detach().sum(dtype=compute_dtype(tensor.dtype)).item())


def _are_tame(query: Tensor, key: Tensor, value: Tensor | None) -> bool:
    """Return whether everything in them is finite, and so is every product of one with another."""
    given = (query, key) if value is None else (query, key, value)
    if (found := compiled.are_tame(given)) is not None:
        return found
    return all(_norm(tensor) < 1e18 for tensor in given)


def _norm(tensor: Tensor) -> float:
    norm = torch.linalg.vector_norm(tensor.detach(), dtype=compute_dtype(tensor.dtype))
    return norm.item()


def gather(
    weights: Float[Tensor, "matrices rows columns"],
    value: Float[Tensor, "matrices columns value_dim"],
    clean: bool,
) -> Float[Tensor, "matrices rows value_dim"]:
    """Return weights @ value, where a weight of 0 takes nothing, not even of NaN or infinity."""
    if clean:
        return torch.bmm(weights, value)
    taken = (weights > 0).to(value.dtype)
    result = torch.bmm(weights, finite(value))
    up, down, broken = (
        torch.bmm(taken, kind.to(value.dtype)) > 0
        for kind in (value == torch.inf, value == -torch.inf, torch.isnan(value))
    )
    result = result.masked_fill(up, torch.inf).masked_fill(down, -torch.inf)
    return result.masked_fill(broken | (up & down), torch.nan)
