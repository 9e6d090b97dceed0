import numpy as np
import pytest

from heedmap.errors import ArgumentError
from heedmap.plot import plot_speakers, save_figure

TURNS = [(0.5, 2.0, "speaker 1"), (1.8, 4.0, "speaker 2"), (4.5, 6.0, "speaker 1")]


def hour(people: int = 2) -> list[tuple[float, float, str]]:
    return [(i * 10.0, i * 10.0 + 9.0, f"speaker {i % people + 1}") for i in range(360)]


def words(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_a_row_for_each_speaker_and_a_lane_for_each_kind(drawn):
    ax = plot_speakers(TURNS, kinds={"speech": [(0.5, 6.0)], "music": []}, duration_seconds=8.0)
    assert words(ax)[:4] == ["speaker 1", "speaker 2", "speech", "music"]
    assert words(ax)[-1] == "seconds"
    assert ax.get_title(loc="left") == "2 speakers, 3 turns"
    assert drawn(ax)


def test_looks_are_arcs_with_weights_and_numbers():
    ax = plot_speakers(TURNS, looks=[(2, 0, 0.31), (2, 1, 0.05)], sure=[1.0, 0.5, 0.0])
    assert {"3", "0.31", "0.050"} <= set(words(ax))
    assert len(ax.patches) == 2
    assert ax.get_title(loc="left") == (
        "2 speakers, 3 turns\n"
        "paler: less sure; arcs and weights: what the turns with a number looked at"
    )


def test_a_turn_that_looks_at_itself_has_no_arc():
    ax = plot_speakers(TURNS, looks=[(1, 1, 0.9)])
    assert not ax.patches
    assert "2" in words(ax)


def test_looks_into_another_line_have_the_number_before_the_weight(drawn):
    ax = plot_speakers(hour(), looks=[(300, 2, 0.25)])
    assert {"301", "301: 0.25"} <= set(words(ax))
    assert not ax.patches
    assert drawn(ax)


def test_an_hour_is_broken_into_lines(drawn):
    ax = plot_speakers(hour(4), duration_seconds=3600.0)
    assert words(ax).count("speaker 4") == 12
    assert "0:55:00" in words(ax)
    assert words(ax)[-1] == "hours:minutes:seconds"
    assert drawn(ax)


def test_a_turn_over_the_end_of_a_line_goes_on_in_the_next():
    ax = plot_speakers([(50.0, 130.0, "a")], duration_seconds=150.0)
    [bars] = [c for c in ax.collections if len(c.get_paths()) == 3 and c.get_zorder() == 1]
    widths = [path.get_extents().width for path in bars.get_paths()]
    assert widths == pytest.approx([640 / 6, 640, 640 / 6])


def test_a_day_still_has_at_most_twelve_lines():
    ax = plot_speakers([(0.0, 90_000.0, "a")])
    assert words(ax).count("a") <= 12


def test_unsure_turns_are_paler():
    ax = plot_speakers(TURNS[:2], sure=[1.0, 0.0])
    bars = [c for c in ax.collections if c.get_zorder() == 1]
    sure, unsure = (np.asarray(bar.get_facecolor())[0, :3].sum() for bar in bars)
    assert sure < unsure


def test_nobody_speaks(drawn):
    ax = plot_speakers([], duration_seconds=3.0, kinds={"music": [(0.0, 3.0)]})
    assert ax.get_title(loc="left") == "nobody speaks"
    assert drawn(ax)


def test_names_have_no_empty_boxes(drawn):
    ax = plot_speakers([(0.0, 1.0, "老师"), (1.0, 2.0, "a\nb")])
    assert "a↵b" in words(ax)
    assert {text for text, _ in drawn(ax)} >= {"老师"}


def test_no_words_touch_each_other(drawn):
    looks = [(i, j, 0.1) for i in range(20, 26) for j in range(0, 60, 3)]
    names = drawn(plot_speakers(hour(2), looks=looks))
    marks = [box for text, box in names if text[0].isdigit() and ":" not in text[:5]]
    assert len(marks) > 10
    for i, box in enumerate(marks):
        assert not any(box.overlaps(other) for other in marks[:i])


def test_a_picture_of_one_second_and_one_in_axes_of_ones_own(tmp_path, drawn):
    from heedmap.plot.figures import new_axes

    ax = new_axes(6.0, 2.0)
    assert plot_speakers([(0.0, 0.3, "a")], ax=ax) is ax
    assert drawn(ax)
    assert save_figure(ax, tmp_path / "speakers.svg").stat().st_size > 1000


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"turns": []}, "duration_seconds must be above 0 and finite; got 0."),
        ({"duration_seconds": float("nan")}, "duration_seconds must be above 0"),
        ({"duration_seconds": 5.0}, "from 0 to 5 s; got 4.5 s to 6 s"),
        ({"turns": [(2.0, 2.0, "a")]}, "must be stretches that end after they begin"),
        ({"kinds": {"music": [(-1.0, 2.0)]}}, "turns and kinds must be stretches"),
        ({"looks": [(0, 3, 0.1)]}, r"looks must go from one of 3 turns .* got \(0, 3, 0.1\)"),
        ({"looks": [(0, 1, 1.5)]}, "with a weight from 0 to 1; got"),
        ({"sure": [0.5]}, r"sure must be a number from 0 to 1 for each of 3 turns; got \[0.5\]"),
    ],
)
def test_bad_input(how, told):
    given = {"turns": TURNS, **how}
    with pytest.raises(ArgumentError, match=told):
        plot_speakers(given.pop("turns"), **given)


def test_small_weights_keep_their_digits():
    ax = plot_speakers(TURNS, looks=[(2, 0, 0.0123), (1, 0, 0.0042)])
    assert {"0.012", "0.0042"} <= set(words(ax))
