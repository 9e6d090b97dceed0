"""Tables of pairs that a model made are kept by their edges, or refused: never nearly right."""

import copy
import io
import pickle
from itertools import combinations_with_replacement
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import heedmap
from heedmap import Causal, Documents, Mask, Padding, Visible, Window
from heedmap.errors import DTypeError, ShapeError
from heedmap.masks import Extent, Spans
from heedmap.places import Places

from .conftest import ForbidDense


def table(mask: Mask, extent: Extent) -> Tensor:
    batch, heads, queries, keys = extent
    places = Places.of_block(
        torch.arange(batch * heads), heads, torch.arange(queries), torch.arange(keys)
    )
    tile = mask.bind(extent).tile(places).expand(batch * heads, queries, keys)
    return tile.unflatten(0, (batch, heads))


def read(visible: Tensor) -> Spans:
    """Return what is read from a table, once it has been found to say the same."""
    spans = Spans.of_table(visible)
    assert spans is not None
    assert torch.equal(table(spans, Extent(*visible.shape)), visible)
    return spans


def is_of_this_form(visible: Tensor) -> bool:
    """Go through every cell."""
    for sample in visible:
        valid = sample.any(1).any(0)
        for row in sample.flatten(0, 1):
            seen = row.nonzero().flatten().tolist()
            if seen and bool((valid & ~row)[seen[0] : seen[-1] + 1].any()):
                return False
    return True


PAD_LEFT = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
PAD_RIGHT = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
PACKED = Documents(torch.tensor([[0, 0, 0, 1, 1, 1], [4, 4, 2, 2, 2, 9]]))
PREFIX = Visible(torch.arange(6)[None] < torch.tensor([3, 3, 3, 4, 5, 6])[:, None])
FORMS = {
    "causal": Causal(),
    "padding on the left": Causal() & Padding(PAD_LEFT),
    "padding on the right": Causal() & Padding(PAD_RIGHT),
    "padding alone": Padding(PAD_RIGHT),
    "holes": Causal() & Padding(torch.tensor([[1, 0, 1, 1, 0, 1], [0, 1, 0, 0, 1, 1]])),
    "a sliding window": Window(before=2, after=0),
    "a window over holes": Window(before=3, after=1)
    & Padding(torch.tensor([[1, 0, 0, 1, 1, 1]] * 2)),
    "packed documents": PACKED,
    "packed, causal and padded": PACKED & Causal() & Padding(PAD_LEFT),
    "a prefix": PREFIX,
    "a padded prefix": PREFIX & Padding(PAD_LEFT),
    "everything": Window(),
}


@pytest.mark.parametrize("form", FORMS)
def test_masks_of_models_are_read_from_their_tables(form: str) -> None:
    read(table(FORMS[form], Extent(2, 3, 6, 6)))


def test_a_static_cache_hides_the_slots_that_are_not_written() -> None:
    visible = table(Causal(alignment=2), Extent(1, 1, 3, 8))
    spans = read(visible)
    assert spans.last.tolist() == [[[2, 3, 4]]]
    assert spans.valid is not None
    assert spans.valid.tolist() == [[True] * 5 + [False] * 3]


def test_a_step_of_decoding_sees_the_cache() -> None:
    visible = torch.tensor([[0, 1, 1, 1, 0], [1, 1, 0, 1, 0]]).bool()[:, None, None]
    spans = read(visible)
    assert spans.first.tolist() == [[[1]], [[0]]]
    assert spans.last.tolist() == [[[3]], [[3]]]


def test_rows_that_see_nothing_end_before_they_begin() -> None:
    visible = torch.tensor([[0, 0, 0], [0, 1, 0], [0, 0, 0]]).bool()[None, None]
    spans = read(visible)
    assert (spans.first.tolist(), spans.last.tolist()) == ([[[0, 1, 0]]], [[[-1, 1, -1]]])
    nothing = read(torch.zeros(2, 1, 3, 4, dtype=torch.bool)).bind(Extent(2, 1, 3, 4))
    assert nothing.key_range(0, 2, 4) == (4, 4)
    assert not nothing.covers(0, 0, 0, 0)


def test_heads_that_differ_are_kept_apart() -> None:
    local, far = (table(Window(before=n, after=0), Extent(2, 1, 5, 5)) for n in (1, 4))
    spans = read(torch.cat([local, far], dim=1))
    assert spans.first.shape == (2, 2, 5)
    assert spans.valid is None


def test_what_all_share_is_kept_once() -> None:
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    spans = read(causal.expand(8, 16, 4, 4))
    assert spans.first.shape == (1, 1, 4)
    padding = torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()[:, None, None].expand(2, 4, 5, 3)
    assert read(padding).first.shape == (2, 1, 5)


def test_one_row_stands_for_every_query() -> None:
    row = torch.tensor([[[[True, True, False]]]])
    spans = Spans.of_table(row)
    assert spans is not None
    extent = Extent(2, 3, 4, 3)
    assert torch.equal(table(spans, extent), row.expand(extent))


@pytest.mark.parametrize("keys", [1, 7, 8, 9, 2039, 2040, 2041, 4100])
def test_no_number_of_keys_is_special(keys: int) -> None:
    visible = torch.ones(1, 1, 3, keys, dtype=torch.bool)
    visible[0, 0, 1, keys // 2 :] = False
    read(visible)
    if keys > 2:
        visible[0, 0, 2, keys - 2] = False
        visible[0, 0, 0] = True
        assert Spans.of_table(visible) is None


@pytest.mark.parametrize("shape", [(2, 3, 0, 4), (2, 3, 4, 0), (2, 3, 0, 0), (0, 2, 3, 3)])
def test_tables_of_nothing(shape: tuple[int, int, int, int]) -> None:
    read(torch.ones(shape, dtype=torch.bool))


def test_slices_and_transposes_are_read_as_they_stand() -> None:
    causal = torch.ones(13, 13, dtype=torch.bool).tril()
    read(causal.T[None, None])
    read(causal[None, None, 2:, 3:])
    read(causal[None, None, ::2, 1::3])


def test_a_table_of_several_blocks_is_refused_for_one_cell() -> None:
    visible = torch.ones(1, 2, 1100, 1100, dtype=torch.bool).tril()
    visible[..., 40:44] = False
    read(visible)
    read(visible.mT)
    visible[0, 1, 1090, 41] = True
    assert Spans.of_table(visible) is None
    visible[0, 1, 1090, 41] = False
    visible[0, 1, 1090, 1000] = False
    assert Spans.of_table(visible) is None


def test_reading_makes_nothing_of_the_size_of_the_table(forbid_dense: ForbidDense) -> None:
    visible = torch.ones(1, 1, 2048, 2048, dtype=torch.bool).tril()
    with forbid_dense(visible.numel() // 3):
        Spans.of_table(visible)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Mask, Extent]:
    batch, heads = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    queries, keys = draw(st.integers(1, 7)), draw(st.integers(1, 20))
    where: Literal["start", "end"] | int = draw(st.sampled_from(["start", "end", -1, 0, 2]))
    bound = st.none() | st.integers(0, 5)
    mask: Mask = Window(where, before=draw(bound), after=draw(bound))
    if draw(st.booleans()):
        mask &= Causal(where)
    if draw(st.booleans()):
        marks = draw(st.lists(st.booleans(), min_size=batch * keys, max_size=batch * keys))
        mask &= Padding(torch.tensor(marks).reshape(batch, keys))
    return mask, Extent(batch, heads, queries, keys)


@given(problems())
@settings(max_examples=150, deadline=None)
def test_any_window_over_any_padding_is_read(problem: tuple[Mask, Extent]) -> None:
    read(table(*problem))


@pytest.mark.parametrize("form", FORMS)
def test_short_cuts_are_exact(form: str) -> None:
    visible = table(FORMS[form], Extent(2, 1, 6, 6))
    spans = read(visible).bind(Extent(2, 1, 6, 6))
    ranges = list(combinations_with_replacement(range(6), 2))
    for first, last in ranges:
        rows = visible[:, :, first : last + 1]
        seen = rows.flatten(0, 2).any(0).nonzero().flatten().tolist()
        assert spans.key_range(first, last, 6) == (seen[0], seen[-1] + 1)
        for left, right in ranges:
            shown = bool(rows[..., left : right + 1].all())
            assert spans.covers(first, last, left, right) == shown


def test_the_range_is_that_of_valid_keys_and_of_rows_that_see_something() -> None:
    first, last = torch.tensor([[[0, 5, 0]]]), torch.tensor([[[1, 4, 6]]])
    bound = Spans(first, last).bind(Extent(1, 1, 3, 7))
    assert bound.key_range(0, 1, 7) == (0, 2)
    valid = torch.tensor([[0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0]]).bool()
    bound = Spans(first, last, valid).bind(Extent(2, 1, 3, 7))
    assert bound.key_range(2, 2, 7) == (2, 5)
    nothing = Spans(first, last, torch.zeros(1, 7, dtype=torch.bool)).bind(Extent(2, 1, 3, 7))
    assert nothing.key_range(0, 2, 7) == (0, 0)


@pytest.mark.parametrize("first_sizes", [(1, 1, 1), (2, 1, 4), (1, 3, 4), (2, 3, 1)])
@pytest.mark.parametrize("last_sizes", [(1, 1, 4), (2, 1, 1), (1, 3, 1), (2, 3, 4)])
@pytest.mark.parametrize("samples", [1, 2])
def test_sizes_of_one_stand_for_all(
    first_sizes: tuple[int, ...], last_sizes: tuple[int, ...], samples: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(0, 3, first_sizes, generator=generator)
    last = torch.randint(2, 5, last_sizes, generator=generator)
    valid = torch.rand(samples, 5, generator=generator) > 0.3
    numbers, extent = torch.arange(5), Extent(2, 3, 4, 5)
    expected = (
        (numbers >= first[..., None]) & (numbers <= last[..., None]) & valid[:, None, None]
    ).expand(extent)
    spans = Spans(first, last, valid)
    assert torch.equal(table(spans, extent), expected)
    cells = expected.new_ones(2 * 3, 4, 5).nonzero().unbind(1)
    found = spans.bind(extent).tile(Places.of_cells(cells[0], 3, cells[1], cells[2]))
    assert torch.equal(found, expected.flatten())


@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(1, 4), st.data())
@settings(max_examples=300, deadline=None)
def test_random_tables_are_refused_unless_they_are_of_this_form(
    batch: int, heads: int, queries: int, keys: int, data: st.DataObject
) -> None:
    size = batch * heads * queries * keys
    marks = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    visible = torch.tensor(marks).reshape(batch, heads, queries, keys)
    if is_of_this_form(visible):
        read(visible)
    else:
        assert Spans.of_table(visible) is None


@pytest.mark.parametrize("form", FORMS)
def test_attention_is_that_under_the_table(form: str) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 3, 6, 4)
    visible = table(FORMS[form], Extent(2, 3, 6, 6))
    expected, their_weights = heedmap.attention(query, key, value, mask=Visible(visible))
    output, weights = heedmap.attention(query, key, value, mask=read(visible))
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(weights.to_dense(), their_weights.to_dense(), atol=1e-6, rtol=1e-5)


def test_both_ends_may_lie_beyond_the_keys() -> None:
    spans = Spans(torch.tensor([[[-5, 2, 9]]]), torch.tensor([[[0, 100, 12]]]))
    extent = Extent(1, 1, 3, 4)
    assert table(spans, extent).int().tolist() == [[[[1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]]]]
    bound = spans.bind(extent)
    assert bound.key_range(0, 2, 4) == (0, 4)
    assert bound.key_range(2, 2, 4) == (4, 4)


@pytest.mark.parametrize("backend", ["auto", "tiles", "reference"])
def test_a_batch_of_nothing(backend: str) -> None:
    query, key = torch.ones(0, 2, 3, 8), torch.ones(0, 2, 4, 8)
    numbers = torch.zeros(0, 1, 3, dtype=torch.long)
    mask = Spans(numbers, numbers)
    output, weights = heedmap.attention(query, key, key, mask=mask, backend=backend)
    assert output.shape == (0, 2, 3, 8)
    assert weights.to_dense().shape == (0, 2, 3, 4)


def test_bound_spans_keep_their_numbers() -> None:
    first, last = torch.zeros(1, 1, 3, dtype=torch.int32), torch.tensor([[[0, 1, 2]]])
    valid = torch.ones(1, 3, dtype=torch.bool)
    extent = Extent(1, 1, 3, 3)
    bound = Spans(first, last, valid).bind(extent)
    before = table(bound, extent)
    first += 1
    last -= 1
    valid[:] = False
    assert torch.equal(table(bound, extent), before)


def test_spans_are_saved_moved_and_copied_after_use() -> None:
    extent = Extent(2, 1, 6, 6)
    spans = read(table(FORMS["holes"], extent)).bind(extent)
    spans.key_range(0, 3, 6)
    file = io.BytesIO()
    torch.save(spans, file)
    file.seek(0)
    for again in (
        pickle.loads(pickle.dumps(spans)),
        copy.deepcopy(spans),
        torch.load(file, weights_only=True),
        spans.to("cpu"),
    ):
        assert torch.equal(table(again, extent), table(spans, extent))
        assert again.key_range(0, 3, 6) == spans.key_range(0, 3, 6)


def test_a_saved_map_keeps_its_spans() -> None:
    query = torch.randn(1, 1, 4, 2)
    weights = heedmap.AttentionMap.from_factors(
        query, query, mask=read(torch.ones(1, 1, 4, 4, dtype=torch.bool).tril())
    )
    file = io.BytesIO()
    torch.save(weights, file)
    file.seek(0)
    assert torch.equal(torch.load(file).to_dense(), weights.to_dense())


def test_what_it_is_shows_in_its_name() -> None:
    spans = Spans(torch.zeros(1, 1, 5, dtype=torch.long), torch.zeros(2, 4, 5, dtype=torch.long))
    assert repr(spans) == "Spans(batch=2, heads=4, queries=5)"


ENDS = torch.zeros(1, 1, 3, dtype=torch.long)


@pytest.mark.bad_input
def test_what_are_no_spans() -> None:
    with pytest.raises(DTypeError, match=r"first must be a torch\.Tensor; got list"):
        Spans([[[0]]], ENDS)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DTypeError, match=r"last must be whole numbers; got torch\.float32"):
        Spans(ENDS, ENDS.float())
    with pytest.raises(DTypeError, match=r"first must be whole numbers; got torch\.bool"):
        Spans(ENDS.bool(), ENDS)
    with pytest.raises(ShapeError, match=r"first must be \[batch, heads, query\]; got \[3\]"):
        Spans(ENDS[0, 0], ENDS)
    with pytest.raises(
        DTypeError, match=r"valid must be bool, True for a valid key; got torch\.float32"
    ):
        Spans(ENDS, ENDS, torch.ones(1, 3))
    with pytest.raises(ShapeError, match=r"valid must be \[batch, key\]; got \[3\]"):
        Spans(ENDS, ENDS, torch.ones(3).bool())


@pytest.mark.bad_input
def test_what_is_no_table() -> None:
    with pytest.raises(DTypeError, match=r"visible must be a torch\.Tensor"):
        Spans.of_table([[True]])  # pyright: ignore[reportArgumentType]
    with pytest.raises(DTypeError, match="visible must be bool"):
        Spans.of_table(torch.ones(1, 1, 2, 2))
    with pytest.raises(ShapeError, match=r"visible must be \[batch, heads, query, key\]"):
        Spans.of_table(torch.ones(2, 2).bool())


@pytest.mark.parametrize(
    ("extent", "message"),
    [
        (Extent(1, 1, 4, 3), r"first must be \[batch, heads, query\] = \[1, 1, 4\]"),
        (Extent(1, 1, 3, 4), r"valid must be \[batch, key\] = \[1, 4\]; got \[1, 3\]"),
        (Extent(5, 1, 3, 3), r"last must be \[batch, heads, query\] = \[5, 1, 3\]"),
    ],
)
def test_sizes_that_do_not_fit(extent: Extent, message: str) -> None:
    spans = Spans(ENDS, ENDS.expand(1 + (extent.batch == 5), 1, 3), torch.ones(1, 3).bool())
    with pytest.raises(ShapeError, match=message):
        spans.bind(extent)
