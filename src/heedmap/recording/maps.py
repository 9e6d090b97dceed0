"""What a layer keeps of its weights, taken apart into a rule and tensors, and put together again.

The tensors have names of their own: ``query``, ``key``, ``bias``, ``sinks`` and ``log_normalizer``
of a map that stands on factors; ``weights`` of one that stands on a matrix; ``matrices``, ``rows``
and ``columns`` where a map is a selection by numbers; ``mask.`` and more; the answers of a summary.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.errors import ArgumentError, ShapeError, UnsupportedError
from heedmap.inputs import FLOATS
from heedmap.lazy import Dense, LazyMatrix, Selection, Sharded
from heedmap.lazy_weights import LazyWeights, LogNormalizer
from heedmap.masks import Extent
from heedmap.places import Index
from heedmap.problem import Problem
from heedmap.recording import masks, shards
from heedmap.recording.files import DTYPES, name_of, unrepeated
from heedmap.recording.masks import Rule
from heedmap.scoring import Scoring
from heedmap.summary import Answers, Summary

Tensors = Mapping[str, Tensor]
Parts = tuple[Rule, dict[str, Tensor]]

SIDES = "matrices", "rows", "columns"
ANSWERS = tuple(field.name for field in fields(Answers))


def take_apart(weights: Any) -> Parts:
    """Return the rule of a map or a summary, and the tensors that it stands on.

    Raises:
        UnsupportedError: for anything else, for a map that was computed with, and for one whose
            mask or scores are functions.
    """
    if isinstance(weights, Summary) and weights.answers is not None:
        answers = {name: getattr(weights.answers, name) for name in ANSWERS}
        pool = None if weights.pool is None else list(weights.pool)
        rule = {"kind": "summary", "top": weights.top, "pool": pool}
        return rule, {name: answer for name, answer in answers.items() if answer is not None}
    if not isinstance(weights, AttentionMap):
        raise UnsupportedError(
            f"what was kept of it is a {type(weights).__name__}, neither a map nor a "
            "heedmap.Summary"
        )
    if weights._kept != (True, True):
        raise UnsupportedError("what was kept of it is a part of a map without queries or keys")
    rule, tensors = _parts_of(weights._rule)
    lead, dtype = list(weights._lead), name_of(weights.dtype)
    return {"kind": "map", "lead": lead, "dtype": dtype, "of": rule}, tensors


def put_together(rule: Rule, tensors: Tensors) -> AttentionMap | Summary:
    """Return the map or summary that was taken apart.

    Raises:
        ArgumentError, DTypeError, KeyError, TypeError, ValueError: if the parts do not make one.
    """
    if rule["kind"] == "summary":
        answers = Answers(**{name: tensors[name] for name in ANSWERS if name in tensors})
        return Summary(rule["top"], None if rule["pool"] is None else tuple(rule["pool"]), answers)
    _require(rule["kind"] == "map", "kind", "a map or a summary", rule["kind"])
    made = _matrix_of(rule["of"], tensors)
    lead = tuple(rule["lead"])
    _require(math.prod(lead) == made.sizes[0], "lead", f"{made.sizes[0]} matrices", list(lead))
    return AttentionMap(made, lead, dtype=DTYPES[rule["dtype"]])


def _parts_of(matrix: LazyMatrix) -> Parts:
    if isinstance(matrix, Selection):
        rule, tensors = _parts_of(matrix.base)
        sides: Rule = {}
        for side in SIDES:
            index: Index = getattr(matrix, side)
            if isinstance(index, range):
                sides[side] = [index.start, index.stop, index.step]
            else:
                tensors[side] = index
        return {"kind": "selection", "base": rule, **sides}, tensors
    if isinstance(matrix, Dense):
        return {"kind": "weights"}, {"weights": matrix.cells_given}
    if isinstance(matrix, LazyWeights) and matrix.form == "weights":
        return _parts_of_factors(matrix)
    if isinstance(matrix, Sharded) and matrix.form == "weights":  # pyright: ignore
        return _parts_of_shards(matrix)
    raise UnsupportedError("what was kept of it was computed from a map and is no map of weights")


def _parts_of_factors(weights: LazyWeights) -> Parts:
    problem = weights.problem
    problem.require_unchanged()
    rule = _rule_of(problem.scoring, problem.clean)
    tensors = _tensors_of(problem, weights.normalizer.known)
    if problem.mask is not None:
        device = problem.query.device
        rule["mask"], more = masks.take_apart(problem.mask, problem.extent, device)
        tensors |= more
    return rule, tensors


def _parts_of_shards(weights: Any) -> Parts:
    """Return what this rank writes; what all of them have alike, the first one writes."""
    own = weights.shards
    if (changed := own.changed()) is not None:
        raise changed
    rule = _rule_of(own.scoring, all(own.clean)) | {"shards": shards.as_plain(own)}
    tensors = _tensors_of(own, weights.normalizer.known)
    if own.members.rank:
        tensors.pop("sinks", None)
    elif own.mask is not None:
        rule["mask"], more = masks.take_apart(own.mask, own.extent, own.query.device)
        tensors |= more
    return rule, tensors


def _rule_of(scoring: Scoring, finite: bool) -> Rule:
    if scoring.change is not None:
        raise UnsupportedError("its scores went through a function (a score_mod)")
    return {
        "kind": "factors",
        "scale": scoring.scale,
        "soft_cap": scoring.soft_cap,
        "finite": finite,
        "mask": None,
    }


def _tensors_of(problem: Any, known: Tensor | None) -> dict[str, Tensor]:
    """Return what a problem, or a rank's part of one, stands on."""
    bias = problem.scoring.bias
    found = {
        "query": problem.query,
        "key": problem.key,
        "bias": None if bias is None else unrepeated(bias, 4),
        "sinks": problem.scoring.sinks,
        "log_normalizer": known,
    }
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def _matrix_of(rule: Rule, tensors: Tensors) -> LazyMatrix:
    if rule["kind"] == "selection":
        base = _matrix_of(rule["base"], tensors)
        chosen = [
            _index(side, rule.get(side), tensors.get(side), size)
            for side, size in zip(SIDES, base.sizes, strict=True)
        ]
        return Selection(base, *chosen)
    if rule["kind"] == "weights":
        cells = tensors["weights"]
        _require(cells.ndim == 3, "weights", "[matrices, rows, columns]", list(cells.shape))
        return Dense(cells)
    _require(rule["kind"] == "factors", "kind", "factors, weights or a selection", rule["kind"])
    return _factors_of(rule, tensors)


def _factors_of(rule: Rule, tensors: Tensors) -> LazyWeights:
    query, key = tensors["query"], tensors["key"]
    extent = _extent_of(query, key)
    bias, sinks, known = (tensors.get(name) for name in ("bias", "sinks", "log_normalizer"))
    if bias is not None:
        fits = bias.ndim == 4 and all(
            have in (1, want) for have, want in zip(bias.shape, extent, strict=True)
        )
        _require(fits, "bias", f"{list(extent)}", list(bias.shape))
    for name, tensor, shape in (("sinks", sinks, (extent.heads,)), ("log", known, extent[:3])):
        fits = tensor is None or tuple(tensor.shape) == tuple(shape)
        _require(fits, name, f"{list(shape)}", tensor is not None and list(tensor.shape))
    scale, soft_cap = rule["scale"], rule["soft_cap"]
    _require(isinstance(scale, float) and math.isfinite(scale), "scale", "a number", scale)
    capped = soft_cap is None or (isinstance(soft_cap, int | float) and soft_cap > 0)
    _require(capped, "soft_cap", "a number above 0", soft_cap)
    mask = rule["mask"]
    bound = None if mask is None else masks.put_together(mask, tensors, extent)
    scoring = Scoring(scale, soft_cap, bias, sinks)
    problem = Problem(query, key, bound, scoring, bool(rule["finite"]))
    return LazyWeights(problem, LogNormalizer(problem, known))


def _extent_of(query: Tensor, key: Tensor) -> Extent:
    for name, tensor in (("query", query), ("key", key)):
        fits = tensor.ndim == 4 and tensor.dtype in FLOATS and tensor.dtype == query.dtype
        _require(fits, name, "[batch, heads, positions, head_dim]", list(tensor.shape))
    batch, heads, queries, head_dim = query.shape
    fits = key.shape[0] == batch and key.shape[3] == head_dim
    fits = fits and key.shape[1] > 0 and heads % key.shape[1] == 0
    _require(fits, "key", f"one for a query of {list(query.shape)}", list(key.shape))
    return Extent(batch, heads, queries, key.shape[2])


def _index(side: str, ends: Any, numbers: Tensor | None, size: int) -> Index:
    if numbers is not None:
        fits = numbers.ndim == 1 and numbers.dtype == torch.int64
        _require(fits, side, "numbers", list(numbers.shape))
        return numbers
    index = range(*ends)
    inside = not index or (min(index) >= 0 and max(index) < size)
    _require(inside, side, f"among {size}", ends)
    return index


def _require(fits: bool, name: str, rule: str, got: object) -> None:
    if not fits:
        raise (ShapeError if isinstance(got, list) else ArgumentError)(
            f"{name} must be {rule}; got {got}"
        )
