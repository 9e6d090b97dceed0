"""A map and an ordinary tensor, indexed, reshaped, joined and read side by side.

Whatever is done to both, the answers have one shape, one number type, equal values; and what torch
refuses is refused with the same built-in class of error.
"""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, multiple, rule
from torch import Tensor

import heedmap
from heedmap import AttentionMap
from heedmap.errors import FrozenError

from .strategies import SEEDS, Sizes, cases, generator

Pair = tuple[Tensor, Tensor]
MOST = 4000
"""Of how many cells a pair is still kept to go on with."""

SIZES = st.builds(
    Sizes,
    batch=st.integers(1, 2),
    heads=st.sampled_from([2, 4]),
    kv_heads=st.just(2),
    queries=st.integers(0, 5),
    keys=st.integers(0, 6),
    width=st.just(3),
    value_width=st.just(2),
)


def dense(tensor: Tensor) -> Tensor:
    return tensor.to_dense(max_bytes=1 << 24) if isinstance(tensor, AttentionMap) else tensor


def tried(operation: Callable[[Any], Any], given: Any) -> Any:
    """Return what comes of it, or the error."""
    try:
        return operation(given)
    except Exception as error:
        return error


def require_same(found: Any, expected: Any) -> None:
    if isinstance(expected, Exception):
        assert isinstance(found, type(expected)), (
            f"torch: {type(expected).__name__}: {expected}; heedmap: {found!r}"
        )
        return
    if isinstance(found, Exception):
        raise found
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            require_same(one, other)
        return
    if not isinstance(expected, Tensor):
        assert found == expected
        return
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    tolerance = {"atol": 3e-6, "rtol": 3e-6} if expected.is_floating_point() else {}
    torch.testing.assert_close(dense(found), expected, equal_nan=True, **tolerance)


def one_index(size: int) -> st.SearchStrategy[Any]:
    """Draw what may stand for one dimension."""
    number = st.integers(-size, size - 1) if size else st.nothing()
    bound = st.none() | st.integers(-size - 1, size + 1)
    numbers = st.lists(number, max_size=4) if size else st.just([])
    marks = st.lists(st.booleans(), min_size=size, max_size=size)
    return st.one_of(
        st.builds(slice, bound, bound, st.none() | st.integers(1, 3)),
        number,
        numbers,
        numbers.map(lambda listed: torch.tensor(listed, dtype=torch.long)),
        number.map(torch.tensor),
        marks.map(lambda listed: torch.tensor(listed, dtype=torch.bool)),
        marks,
        st.lists(number, min_size=4, max_size=4).map(lambda n: torch.tensor(n).reshape(2, 2)),
    )


def wrong_index(size: int) -> st.SearchStrategy[Any]:
    """Draw what is mostly refused for one dimension."""
    number = st.integers(-size - 1, size)
    return st.one_of(
        number,
        st.builds(slice, st.none() | number, st.none() | number, st.integers(-1, 0)),
        st.lists(number, min_size=1, max_size=3),
        st.lists(st.booleans(), min_size=size + 1, max_size=size + 1),
        st.sampled_from([True, False, 0.5, "x"]),
    )


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Draw an index of a tensor of this shape, in which at most one part is wrong."""
    if draw(st.integers(0, 19)) == 19:
        return torch.rand(shape, generator=generator(draw(SEEDS))) < 0.5
    many = draw(st.integers(0, len(shape)))
    behind = draw(st.integers(0, len(shape) - many))
    sizes = [*shape[:many], *shape[len(shape) - behind :]]
    wrong = draw(st.integers(0, 4 * len(shape)))
    parts = [
        draw(wrong_index(size) if place == wrong else one_index(size))
        for place, size in enumerate(sizes)
    ]
    if behind or draw(st.booleans()):
        parts.insert(many, ...)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        parts.insert(draw(st.integers(0, len(parts))), draw(st.sampled_from([None, None, None, 0])))
    alone = len(parts) == 1 and not isinstance(parts[0], list) and draw(st.booleans())
    return parts[0] if alone else tuple(parts)


def dims(ndim: int) -> st.SearchStrategy[int]:
    """Draw a dimension, seldom one that does not exist."""
    return st.integers(-ndim, max(ndim - 1, 0)) | st.integers(-ndim - 1, ndim)


class SideBySide(RuleBasedStateMachine):
    """Pairs of a map, or a view of one, and the tensor that it stands for."""

    pairs = Bundle("pairs")

    def both(self, pair: Pair, operation: Callable[[Any], Any]) -> Any:
        """Do it to both, and go on with what comes back."""
        found, expected = (tried(operation, one) for one in pair)
        require_same(found, expected)
        if isinstance(expected, tuple) and expected:
            found, expected = found[-1], expected[-1]
        # Beside an ordinary tensor there is nothing left to compare.
        is_view = isinstance(found, AttentionMap) and expected.ndim > 0 and expected.numel() <= MOST
        return (found, expected) if is_view else multiple()

    @rule(target=pairs, size=SIZES, data=st.data())
    def attend(self, size: Sizes, data: st.DataObject) -> Pair:
        case = data.draw(
            cases(size, extreme=False, dtypes=(torch.float32, torch.float64)), label="case"
        )
        weights = case.attend()[1]
        return weights, weights.to_dense()

    @rule(target=pairs, size=SIZES, seed=SEEDS)
    def from_weights(self, size: Sizes, seed: int) -> Pair:
        shape = (size.batch, size.queries, size.keys)
        held = torch.rand(shape, generator=generator(seed))
        return AttentionMap.from_weights(held), held.clone()

    @rule(target=pairs, pair=pairs, data=st.data())
    def index(self, pair: Pair, data: st.DataObject) -> Any:
        key = data.draw(keys(tuple(pair[1].shape)), label="key")
        found, expected = (tried(lambda one: one[key], one) for one in pair)
        if isinstance(found, IndexError) and isinstance(expected, Tensor):
            # Where nothing comes back, torch does not look whether what is asked for exists.
            assert not expected.numel()
            return multiple()
        return self.both(pair, lambda one: one[key])

    @rule(target=pairs, pair=pairs, data=st.data())
    def transpose(self, pair: Pair, data: st.DataObject) -> Any:
        one, other = (data.draw(dims(pair[1].ndim), label="dim") for _ in range(2))
        return self.both(pair, lambda x: x.transpose(one, other))

    @rule(target=pairs, pair=pairs)
    def turn(self, pair: Pair) -> Any:
        return self.both(pair, lambda x: x.mT)

    @rule(target=pairs, pair=pairs, data=st.data())
    def permute(self, pair: Pair, data: st.DataObject) -> Any:
        order = list(data.draw(st.permutations(range(pair[1].ndim)), label="order"))
        wrong = data.draw(st.sampled_from([None] * 5 + [0, 9, -1]), label="wrong")
        order = order if wrong is None else [*order[1:], wrong]
        return self.both(pair, lambda x: x.permute(order))

    @rule(target=pairs, pair=pairs, data=st.data())
    def unsqueeze(self, pair: Pair, data: st.DataObject) -> Any:
        dim = data.draw(dims(pair[1].ndim + 1), label="dim")
        return self.both(pair, lambda x: x.unsqueeze(dim))

    @rule(target=pairs, pair=pairs, data=st.data())
    def squeeze(self, pair: Pair, data: st.DataObject) -> Any:
        dim = data.draw(st.none() | dims(pair[1].ndim), label="dim")
        return self.both(pair, lambda x: x.squeeze() if dim is None else x.squeeze(dim))

    @rule(target=pairs, pair=pairs, data=st.data())
    def reshape(self, pair: Pair, data: st.DataObject) -> Any:
        shape = pair[1].shape
        choices = [(-1,), (-1, *shape[-2:]), (*shape, 1), (1, *shape), (-1, *shape[-1:]), (7, -1)]
        chosen = data.draw(st.sampled_from(choices), label="shape")
        return self.both(pair, lambda x: x.reshape(chosen))

    @rule(target=pairs, pair=pairs, data=st.data())
    def flatten(self, pair: Pair, data: st.DataObject) -> Any:
        start, end = (data.draw(dims(pair[1].ndim), label="dim") for _ in range(2))
        return self.both(pair, lambda x: x.flatten(start, end))

    @rule(target=pairs, pair=pairs, times=st.integers(1, 3))
    def expand(self, pair: Pair, times: int) -> Any:
        return self.both(pair, lambda x: x.expand(times, *[-1] * x.ndim))

    @rule(target=pairs, pair=pairs, data=st.data())
    def select_by_tensor(self, pair: Pair, data: st.DataObject) -> Any:
        dim = data.draw(dims(pair[1].ndim), label="dim")
        size = pair[1].shape[dim] if -pair[1].ndim <= dim < pair[1].ndim else 1
        listed = data.draw(st.lists(st.integers(0, size), max_size=4), label="numbers")
        numbers = torch.tensor(listed, dtype=torch.long)
        if listed and max(listed) == size and not pair[1].numel():
            return multiple()
        if listed and max(listed) == size:
            # For what does not exist torch has an IndexError or a RuntimeError, by where it lies.
            with pytest.raises(IndexError):
                pair[0].index_select(dim, numbers)
            return multiple()
        return self.both(pair, lambda x: x.index_select(dim, numbers))

    @rule(target=pairs, pair=pairs, data=st.data())
    def narrow(self, pair: Pair, data: st.DataObject) -> Any:
        dim = data.draw(dims(pair[1].ndim), label="dim")
        start, length = (data.draw(st.integers(-3, 7), label="number") for _ in range(2))
        return self.both(pair, lambda x: x.narrow(dim, start, length))

    @rule(target=pairs, pair=pairs, data=st.data())
    def divide(self, pair: Pair, data: st.DataObject) -> Any:
        dim = data.draw(dims(pair[1].ndim), label="dim")
        into = data.draw(st.integers(-1, 4), label="into")
        way = data.draw(st.sampled_from(["split", "chunk", "unbind"]), label="way")
        if way == "unbind":
            return self.both(pair, lambda x: x.unbind(dim))
        return self.both(pair, lambda x: getattr(x, way)(into, dim))

    @rule(target=pairs, pair=pairs, data=st.data())
    def flip(self, pair: Pair, data: st.DataObject) -> Any:
        dim = data.draw(dims(pair[1].ndim), label="dim")
        return self.both(pair, lambda x: x.flip(dim))

    @rule(target=pairs, pair=pairs, other=pairs, data=st.data())
    def join(self, pair: Pair, other: Pair, data: st.DataObject) -> Any:
        dim = data.draw(dims(pair[1].ndim + 1), label="dim")
        other = data.draw(st.sampled_from([pair, other]), label="other")
        join = data.draw(st.sampled_from([torch.stack, torch.cat]), label="how")
        if join is torch.cat and any(one.shape == (0,) for one in (pair[1], other[1])):
            # Such a tensor torch.cat leaves out, whatever the others are.
            return multiple()
        joined = list(zip(pair, other, strict=True))
        return self.both((joined[0], joined[1]), lambda both: join(list(both), dim))

    @rule(pair=pairs, data=st.data())
    def read(self, pair: Pair, data: st.DataObject) -> None:
        dim = data.draw(dims(pair[1].ndim), label="dim")
        keep = data.draw(st.booleans(), label="keepdim")
        name = data.draw(st.sampled_from(["sum", "mean", "amax", "amin"]), label="name")
        self.both(pair, lambda x: getattr(x, name)(dim, keepdim=keep))
        self.both(pair, lambda x: x.sum())

    @rule(pair=pairs, data=st.data())
    def top(self, pair: Pair, data: st.DataObject) -> None:
        dim = data.draw(dims(pair[1].ndim), label="dim")
        count = data.draw(st.integers(0, 4), label="count")
        self.both(pair, lambda x: x.topk(count, dim=dim).values)

    @rule(pair=pairs)
    def iterate(self, pair: Pair) -> None:
        self.both(pair, list)
        self.both(pair, len)
        self.both(pair, lambda x: x.tolist() if x.numel() < 2 else x.shape)

    @rule(pair=pairs, data=st.data())
    def write(self, pair: Pair, data: st.DataObject) -> None:
        key = data.draw(keys(tuple(pair[1].shape)), label="key")
        with pytest.raises(FrozenError):
            pair[0][key] = 0
        with pytest.raises(FrozenError):
            pair[0].mul_(2)


TestSideBySide = SideBySide.TestCase
TestSideBySide.settings = settings(stateful_step_count=30)


def test_a_map_is_not_made_dense_by_what_has_a_lazy_form() -> None:
    """Else the above would compare torch with torch."""
    weights = heedmap.attention(*torch.randn(3, 2, 4, 5, 3))[1]
    with heedmap.dense_budget(0):
        for key in (0, (..., 1), (slice(None), [1, 0]), (..., slice(1, 3), [0, 2]), None):
            assert isinstance(weights[key], AttentionMap)
        assert isinstance(torch.stack([weights, weights]).transpose(-1, -2), AttentionMap)


def test_a_map_without_cells_keeps_its_heads() -> None:
    weights = AttentionMap.from_factors(torch.randn(2, 3, 0, 4), torch.randn(2, 3, 5, 4))
    flat = weights.reshape(6, 0, 5)
    assert flat.shape == (6, 0, 5)
    assert flat[4].shape == (0, 5)
    assert flat.reshape(1, 6, 0, 5).shape == (1, 6, 0, 5)
