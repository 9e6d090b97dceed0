import pytest
import torch

from heedmap.axes import Axis
from heedmap.errors import ArgumentError, ShapeError
from heedmap.plot import plot_timeline


def film(size: int) -> Axis:
    frames = [(12 * i, 12 * i + 12) for i in range(size)]
    return Axis.of_frames([(i * 0.5, i * 0.5 + 0.5) for i in range(size)], frames)


def remarks(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_the_query_and_the_strongest_moments_are_named(sound):
    row = torch.full((1500,), 1e-5)
    row[250], row[251], row[1000] = 0.5, 0.3, 0.1
    assert remarks(plot_timeline(row, sound, query=100)) == [
        "query 2.00 s",
        "5.00 s: 50 %",
        "20.00 s: 10 %",
    ]


def test_frames_of_a_film_are_named():
    row = torch.zeros(20)
    row[7] = 1.0
    shown = remarks(plot_timeline(row, film(20), query=2))
    assert shown == ["query 1.00 s (frame 24)", "3.50 s (frame 84): 100 %"]


def test_an_even_row_has_no_strongest_moment(sound):
    assert len(remarks(plot_timeline(torch.full((1500,), 1 / 1500), sound, query=0))) == 1


def test_no_peak_is_lost_where_positions_outnumber_dots(drawn):
    axis = Axis.of_seconds([(i * 0.02, i * 0.02 + 0.02) for i in range(20_001)])
    row = torch.zeros(20_001)
    row[20_000] = 0.7
    ax = plot_timeline(row, axis, query=0)
    assert ax.patches[0].get_data().values.max() == pytest.approx(0.7)
    assert ax.get_ylabel() == "weight, largest of 14"
    assert ax.get_xlabel() == "minutes:seconds"
    assert drawn(ax)


def test_a_lazy_row_is_drawn(lazy, sound):
    assert plot_timeline(lazy(torch.full((1500,), 1 / 1500)), sound, query=0).patches


def test_remarks_do_not_touch_and_are_not_cut_off(drawn):
    row = torch.zeros(400)
    row[[0, 14, 28]] = 0.3
    ax = plot_timeline(row, film(400), query=399)
    drawn(ax)
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == 4
    for i, box in enumerate(boxes):
        assert ax.bbox.x0 <= box.x0
        assert box.x1 <= ax.get_figure().bbox.x1
        assert not any(box.overlaps(other) for other in boxes[:i])


@pytest.mark.parametrize("size", [1, 2])
def test_short_rows_are_drawn(size, drawn):
    assert drawn(plot_timeline(torch.full((size,), 1 / size), film(size), query=0))


def test_a_row_of_zeros_says_so(sound, drawn):
    ax = plot_timeline(torch.zeros(1500), sound, query=1499)
    assert ax.get_ylabel() == "weight (all are 0)"
    assert drawn(ax)


@pytest.mark.bad_input
def test_one_row_is_wanted(sound):
    with pytest.raises(ShapeError, match=r"shares must be \[key\]; got \[1, 1500\]"):
        plot_timeline(torch.zeros(1, 1500), sound, query=0)


def test_tokens_are_refused(sentence):
    with pytest.raises(ArgumentError, match="axis must be moments in the order of time; got token"):
        plot_timeline(torch.zeros(7), sentence, query=0)


def test_an_axis_of_another_size_is_refused(sound):
    with pytest.raises(ShapeError, match="axis must have one label for each key"):
        plot_timeline(torch.zeros(7), sound, query=0)


@pytest.mark.parametrize("query", [-1, 1500])
def test_the_query_must_be_on_the_axis(query, sound):
    with pytest.raises(ArgumentError, match="query must lie from 0 to 1499"):
        plot_timeline(torch.zeros(1500), sound, query=query)


def test_nan_is_refused(sound):
    with pytest.raises(ArgumentError, match="shares must be finite"):
        plot_timeline(torch.full((1500,), torch.nan), sound, query=0)
