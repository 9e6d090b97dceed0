"""Masks are boolean algebra, and their short cuts never promise too much."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedmap import Causal, Documents, Mask, Padding, Visible, Window
from heedmap.masks import Extent, Spans
from heedmap.places import Places

BATCH, HEADS = 2, 2


def bits(*shape: int) -> st.SearchStrategy[Tensor]:
    size = int(torch.tensor(shape).prod())
    return st.lists(st.booleans(), min_size=size, max_size=size).map(
        lambda marks: torch.tensor(marks).reshape(shape)
    )


def numbers(*shape: int) -> st.SearchStrategy[Tensor]:
    size = int(torch.tensor(shape).prod())
    return st.lists(st.integers(0, 2), min_size=size, max_size=size).map(
        lambda ids: torch.tensor(ids).reshape(shape)
    )


def ends(queries: int, keys: int) -> st.SearchStrategy[Tensor]:
    size = BATCH * HEADS * queries
    return st.lists(st.integers(-1, keys), min_size=size, max_size=size).map(
        lambda numbers: torch.tensor(numbers).reshape(BATCH, HEADS, queries)
    )


def simple(queries: int, keys: int) -> st.SearchStrategy[Mask]:
    alignment = st.sampled_from(["start", "end", -2, 0, 3])
    bound = st.none() | st.integers(0, 4)
    return st.one_of(
        alignment.map(Causal),
        st.builds(
            lambda a, before, after: Window(a, before=before, after=after), alignment, bound, bound
        ),
        bits(BATCH, keys).map(Padding),
        st.builds(Documents, numbers(BATCH, queries), numbers(BATCH, keys)),
        st.builds(Spans, ends(queries, keys), ends(queries, keys), st.none() | bits(BATCH, keys)),
        bits(queries, keys).map(Visible),
        bits(BATCH, HEADS, 1, keys).map(Visible),
    )


@st.composite
def problems(draw: st.DrawFn, masks: int) -> tuple[Extent, list[Mask]]:
    queries, keys = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    extent = Extent(BATCH, HEADS, queries, keys)
    return extent, [draw(simple(queries, keys)) for _ in range(masks)]


def table(mask: Mask, extent: Extent) -> Tensor:
    batch, heads, queries, keys = extent
    places = Places.of_block(
        torch.arange(batch * heads), heads, torch.arange(queries), torch.arange(keys)
    )
    return mask.bind(extent).tile(places).expand(batch * heads, queries, keys)


@given(problems(3))
@settings(max_examples=150, deadline=None)
def test_boolean_algebra(problem: tuple[Extent, list[Mask]]) -> None:
    extent, (a, b, c) = problem

    def same(one: Mask, other: Mask) -> bool:
        return torch.equal(table(one, extent), table(other, extent))

    assert torch.equal(table(a & b, extent), table(a, extent) & table(b, extent))
    assert torch.equal(table(a | b, extent), table(a, extent) | table(b, extent))
    assert same(a & b, b & a)
    assert same(a | b, b | a)
    assert same((a & b) & c, a & (b & c))
    assert same(a & (b | c), (a & b) | (a & c))
    assert same(a | (b & c), (a | b) & (a | c))
    assert same(a & (a | b), a)
    assert same(a | a, a)


@given(problems(2), st.data())
@settings(max_examples=150, deadline=None)
def test_short_cuts_never_promise_too_much(
    problem: tuple[Extent, list[Mask]], data: st.DataObject
) -> None:
    extent, (a, b) = problem
    mask = data.draw(st.sampled_from([a, a & b, a | b, (a & b) | a])).bind(extent)
    first, last = sorted(data.draw(st.integers(0, extent.queries - 1)) for _ in range(2))
    left, right = sorted(data.draw(st.integers(0, extent.keys - 1)) for _ in range(2))
    seen = table(mask, extent)[:, first : last + 1]
    start, stop = mask.key_range(first, last, extent.keys)
    assert 0 <= start <= stop <= extent.keys
    assert not bool(seen[..., :start].any())
    assert not bool(seen[..., stop:].any())
    if mask.covers(first, last, left, right):
        assert bool(seen[..., left : right + 1].all())


@given(problems(1), st.data())
@settings(max_examples=100, deadline=None)
def test_single_cells_are_those_of_the_block(
    problem: tuple[Extent, list[Mask]], data: st.DataObject
) -> None:
    extent, (mask,) = problem
    cells = [
        torch.tensor(data.draw(st.lists(st.integers(0, size - 1), min_size=5, max_size=5)))
        for size in (BATCH * HEADS, extent.queries, extent.keys)
    ]
    found = mask.bind(extent).tile(Places.of_cells(cells[0], HEADS, cells[1], cells[2]))
    assert torch.equal(found.expand(5), table(mask, extent)[tuple(cells)])
