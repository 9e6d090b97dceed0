"""What a scene refuses."""

import pytest
import torch

from heedmap import AttentionMap, Axis
from heedmap.errors import ArgumentError, ShapeError
from heedmap.explore.scene import Scene, SceneLayer, describe_axis


def test_an_axis_as_the_page_has_it() -> None:
    axis = Axis.of_tokens("hi you", ["hi", "you"], [(0, 2), (3, 6)])
    assert describe_axis(axis) == {
        "kind": "token",
        "unit": "character",
        "text": "hi you",
        "labels": ("hi", "you"),
        "spans": ((0.0, 2.0), (3.0, 6.0)),
        "frames": (),
    }


@pytest.mark.bad_input
def test_what_does_not_fit_is_refused() -> None:
    weights = AttentionMap.from_weights(torch.eye(3)[None])
    layer = SceneLayer("map", "self", weights, 0, 0, ("0",), ("",))
    with pytest.raises(ArgumentError, match="layers must hold at least one map; got none"):
        Scene("nothing", (), ())
    with pytest.raises(ShapeError, match="the query axis of map must have 3 positions; got 2"):
        Scene("short", (layer,), (Axis.of_positions(2),))
