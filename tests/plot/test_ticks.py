import pytest

from heedmap.axes import Axis
from heedmap.plot.fonts import Fonts
from heedmap.plot.ticks import clock, round_times, ticks_of

FONTS = Fonts(("sans-serif",), "")


def tokens(size: int) -> Axis:
    return Axis.of_tokens("x" * size, ["x"] * size, [(i, i + 1) for i in range(size)])


def test_forty_tokens_are_all_named_where_they_fit():
    assert len(ticks_of(tokens(40), 40, FONTS, 400.0).labels) == 40
    assert len(ticks_of(tokens(40), 40, FONTS, 130.0).labels) <= 10


def test_more_tokens_are_thinned_and_numbered():
    ticks = ticks_of(tokens(512), 512, FONTS, 400.0)
    assert 10 <= len(ticks.labels) <= 20
    assert ticks.labels[1] == f"{ticks.places[1]:g}  x"


def test_times_stand_where_their_positions_begin():
    axis = Axis.of_seconds([(i * 0.5, i * 0.5 + 0.5) for i in range(20)])
    ticks = ticks_of(axis, 20, FONTS, 400.0)
    assert ticks.labels[:3] == ("0", "2", "4")
    assert ticks.places[:3] == pytest.approx((-0.5, 3.5, 7.5))
    assert ticks.unit == "seconds"


def test_uneven_times_keep_their_places():
    axis = Axis.of_seconds([(0.0, 1.0), (1.0, 9.0), (9.0, 10.0)])
    ticks = ticks_of(axis, 3, FONTS, 400.0)
    assert dict(zip(ticks.labels, ticks.places, strict=True))["8"] == pytest.approx(1.375)


def test_long_films_have_a_clock():
    axis = Axis.of_frames(
        [(i * 10.0, i * 10 + 10.0) for i in range(400)], [(i, i + 1) for i in range(400)]
    )
    ticks = ticks_of(axis, 400, FONTS, 400.0)
    assert ticks.labels[1] == "0:10:00"
    assert ticks.unit == "hours:minutes:seconds"


def test_moments_out_of_order_are_labelled_one_by_one():
    axis = Axis.of_seconds([(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]).take([2, 0])
    assert ticks_of(axis, 2, FONTS, 400.0).labels == ("2.00s", "0.00s")


def test_sound_without_times_is_labelled_one_by_one():
    assert ticks_of(Axis("audio", ("a", "b")), 2, FONTS, 400.0).labels == ("a", "b")


def test_bare_positions_have_round_numbers():
    assert ticks_of(None, 1000, FONTS, 400.0).labels[:3] == ("0", "200", "400")
    assert ticks_of(None, 1, FONTS, 400.0).labels == ("0",)


@pytest.mark.parametrize("length", [0.013, 0.7, 1.0, 29.98, 61.0, 3601.0, 1e5, 1e7])
def test_round_times_lie_inside_and_are_few(length):
    times = round_times(0.0, length)
    assert 2 <= len(times) <= 10
    assert times[0] == 0.0
    assert times[-1] <= length + 1e-9


def test_the_clock_never_shows_sixty_seconds():
    assert clock(119.999, 600.0, 2) == "2:00.00"
