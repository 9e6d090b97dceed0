"""What a moment looks at, shared among the parts of a recording."""

import pytest
import torch

from heedmap import AttentionMap
from heedmap.axes import Axis
from heedmap.explore.scene import Scene, SceneLayer
from heedmap.lesson.timelines import Part, Timeline, voices


def timeline() -> Timeline:
    """Return ten moments of half a second, of two speakers."""
    weights = torch.rand(1, 10, 10, generator=torch.Generator().manual_seed(0)).softmax(-1)
    axis = Axis.of_seconds([(i / 2, (i + 1) / 2) for i in range(10)])
    layer = SceneLayer("map", "self", AttentionMap.from_weights(weights), 0, 0, ("0",), ("",))
    parts = (Part(0.0, 2.0, "A"), Part(2.0, 4.0, "B"), Part(3.5, 5.0, "A"))
    return Timeline(Scene("talk", (layer,), (axis,)), parts, 3)


def test_a_moment_shares_what_it_gives_beyond_a_second() -> None:
    made = timeline()
    weights = made.scene.layers[0].weights[0, 4].to_dense().double()
    row = made.row(4)
    assert row["weights"] == pytest.approx(weights.tolist(), abs=1e-7)
    # Moment 4 is at 2.25 s: moments 2 to 6 are at most a second away.
    far = weights.clone()
    far[2:7] = 0
    assert row["near"] == pytest.approx(float(weights[2:7].sum()), abs=1e-6)
    speaks = {"A": [0, 1, 7, 8, 9], "B": [7]}
    for name, moments in speaks.items():
        share, time = row["far"][name]
        assert share == pytest.approx(float(far[moments].sum() / far.sum()), abs=1e-6)
        assert time == pytest.approx(len(moments) / 5, abs=1e-6)


def test_what_the_page_learns_of_it() -> None:
    told = timeline().described()
    assert told["parts"] == [[0.0, 2.0, "A"], [2.0, 4.0, "B"], [3.5, 5.0, "A"]]
    assert (told["kind"], told["first"], len(told["seconds"])) == ("audio", 3, 10)


@pytest.mark.slow
def test_the_recording_shows_who_speaks() -> None:
    made = voices()
    shares = made.row(made.first)["far"]
    (of_same, time_of_same), (of_other, time_of_other) = shares["B"], shares["A"]
    # At 16 s B speaks, and looks further than a second mostly at B.
    assert of_same / time_of_same > 3 * of_other / time_of_other
