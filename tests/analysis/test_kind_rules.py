"""Names of heads by the stated rules."""

from dataclasses import replace

import pytest

from heedmap.analysis.figures import HeadFigures
from heedmap.analysis.kind_rules import RULES, label_of
from heedmap.axes import Kind

DULL = HeadFigures(
    layer=0,
    head=0,
    entropy_nats=1.0,
    evenness=0.5,
    mean_distance=3.0,
    on_self=0.1,
    on_previous=0.1,
    on_next=0.1,
    on_first=0.1,
)


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("token", {}, "mixed"),
        ("token", {"on_self": 0.6}, "self"),
        ("token", {"on_previous": 0.6}, "previous token"),
        ("audio", {"on_next": 0.6}, "next moment"),
        ("token", {"on_first": 0.6}, "first position (sink)"),
        ("token", {"on_special": 0.7}, "special tokens (sink)"),
        ("token", {"repeats_beyond_distance": 0.2, "on_first": 0.6}, "repeated word"),
        ("token", {"repeats_beyond_distance": 0.2, "on_previous": 0.6}, "previous token"),
        ("token", {"repeats_beyond_distance": 0.1}, "mixed"),
        ("video", {"on_own_segment": 0.8, "own_segment_beyond_distance": 0.4}, "same segment"),
        (
            "audio",
            {"on_own_segment": 0.9, "own_segment_beyond_distance": 0.0, "far": 0.1},
            "nearby (within 1 s)",
        ),
        ("audio", {"far": 0.5, "prefers_alike": 0.7}, "similar sound"),
        ("video", {"far": 0.5, "prefers_alike": 0.7}, "similar picture"),
        ("audio", {"far": 0.8, "prefers_alike": 0.5, "evenness": 0.95}, "broad"),
    ],
)
def test_labels(kind: Kind, changes: dict[str, float], expected: str) -> None:
    assert label_of(replace(DULL, **changes), kind) == expected


def test_the_rules_say_every_label() -> None:
    for label in ("repeated word", "first position (sink)", "special tokens (sink)", "broad"):
        assert f"“{label}”" in RULES
