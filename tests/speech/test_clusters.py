import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from heedmap.errors import ArgumentError, MissingExtraError
from heedmap.speech.clusters import NOBODY, SpeakerCount, clusters_of


def around(people: int, each: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return points around `people` directions, `each` for one, and whose they are."""
    generator = torch.Generator().manual_seed(seed)
    centres = normalize(torch.randn(people, 16, generator=generator), dim=1)
    whose = torch.arange(people).repeat_interleave(each)
    noises = torch.randn(people * each, 16, generator=generator) * noise / 4
    return centres[whose] + noises, whose


def same_pairs(cluster: Tensor) -> Tensor:
    """Return which pairs are together, whatever the clusters are called; strays with nobody."""
    return (cluster[:, None] == cluster) & (cluster != NOBODY)


@given(
    people=st.integers(1, 5),
    each=st.integers(1, 6),
    seed=st.integers(0, 1000),
    asked=st.integers(1, 8),
)
@settings(max_examples=40, deadline=None)
def test_as_many_clusters_as_asked_for(people: int, each: int, seed: int, asked: int) -> None:
    points, _ = around(people, each, 0.8, seed)
    cluster = clusters_of(
        points,
        torch.arange(len(points)),
        torch.ones(len(points)),
        threshold=0.5,
        count=SpeakerCount.of(asked),
        least_seconds=2.5,
    )
    found = set(cluster.tolist()) - {NOBODY}
    assert found == set(range(min(asked, len(points))))


@given(least=st.integers(1, 4), more=st.integers(0, 3), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_bounds_are_kept_whatever_the_threshold(least: int, more: int, seed: int) -> None:
    points, _ = around(3, 4, 0.8, seed)
    count = SpeakerCount.of(min_speakers=least, max_speakers=least + more)
    window, seconds = torch.arange(12), torch.ones(12)
    for threshold in (0.0, 0.4, 2.0):
        cluster = clusters_of(points, window, seconds, threshold=threshold, count=count)
        assert least <= int(cluster.max()) + 1 <= least + more


@given(seed=st.integers(0, 1000), threshold=st.floats(0.05, 1.2))
@settings(max_examples=30, deadline=None)
def test_the_order_of_voices_does_not_matter(seed: int, threshold: float) -> None:
    points, _ = around(3, 5, 0.7, seed)
    window = torch.arange(15) // 2
    seconds = torch.rand(15, generator=torch.Generator().manual_seed(seed)) * 3
    order = torch.randperm(15, generator=torch.Generator().manual_seed(seed + 1))
    options = {"threshold": threshold, "count": SpeakerCount(), "least_seconds": 1.0}
    cluster = clusters_of(points, window, seconds, **options)
    shuffled = clusters_of(points[order], window[order], seconds[order], **options)
    assert torch.equal(same_pairs(cluster)[order][:, order], same_pairs(shuffled))


def test_clusters_are_numbered_by_their_first_voices() -> None:
    points, _ = around(3, 2, 0.1, seed=1)
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    cluster = clusters_of(
        points[order], torch.arange(6), torch.ones(6), threshold=0.5, count=SpeakerCount()
    )
    assert cluster.tolist() == [0, 1, 0, 2, 1, 2]


def test_two_of_one_window_are_apart_though_they_are_alike() -> None:
    points = torch.tensor([[1.0, 0.02], [1.0, 0.0], [1.0, 0.01]])
    cluster = clusters_of(
        points,
        torch.tensor([0, 0, 1]),
        torch.ones(3),
        threshold=0.5,
        count=SpeakerCount(),
    )
    assert cluster[0] != cluster[1]


def test_what_is_heard_too_shortly_is_a_stray_unless_it_is_asked_for() -> None:
    points, _ = around(2, 4, 0.1, seed=2)
    points, window = points[:5], torch.arange(5)
    options = {"threshold": 0.5, "least_seconds": 3.0}
    alone = clusters_of(points, window, torch.ones(5), count=SpeakerCount(), **options)
    assert alone.tolist() == [0, 0, 0, 0, NOBODY]
    asked = clusters_of(points, window, torch.ones(5), count=SpeakerCount.of(2), **options)
    assert asked.tolist() == [0, 0, 0, 0, 1]


def test_none_and_one() -> None:
    for size in (0, 1):
        points = torch.ones(size, 3)
        cluster = clusters_of(
            points, torch.arange(size), torch.ones(size), threshold=0.5, count=SpeakerCount.of(3)
        )
        assert cluster.tolist() == [0] * size


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"speakers": 0}, "speakers must be a number of people, 1 or more; got 0"),
        ({"min_speakers": -1}, "min_speakers must be a number of people, 1 or more; got -1"),
        ({"max_speakers": 0}, "max_speakers must be a number of people, 1 or more; got 0"),
        (
            {"min_speakers": 3, "max_speakers": 2},
            "max_speakers must be no smaller than min_speakers; got 2 and 3",
        ),
        (
            {"speakers": 2, "max_speakers": 4},
            "speakers must be given without min_speakers and max_speakers; got speakers 2",
        ),
    ],
)
def test_numbers_that_make_no_sense(given: dict[str, int], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        SpeakerCount.of(**given)


def test_scipy_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scipy.optimize", None)
    points, _ = around(2, 2, 0.1, seed=0)
    with pytest.raises(MissingExtraError, match=r"heedmap\[speech\]"):
        clusters_of(points, torch.arange(4), torch.ones(4), threshold=0.5, count=SpeakerCount())
