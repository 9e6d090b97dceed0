from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import heedmap
from heedmap.errors import ArgumentError
from heedmap.speech import linking
from heedmap.speech.assigning import turns_of
from heedmap.speech.linking import link
from heedmap.speech.projections import Projections
from heedmap.speech.voices import Voices

from ..conftest import ForbidDense
from .made_talk import made_talk, silent_talk, taking_turns


def agrees(found: torch.Tensor, truth: torch.Tensor) -> bool:
    return torch.equal(found[:, None] == found, truth[:, None] == truth)


@pytest.mark.parametrize("people", [1, 2, 3, 5])
def test_speakers_are_found(people: int) -> None:
    talk = made_talk(taking_turns(people, 90.0))
    linked = link(talk.voices)
    assert linked.speakers == people
    assert agrees(linked.cluster, talk.speaker)
    assert linked.notes == ()
    assert linked.map.shape == (len(talk.speaker),) * 2


def test_two_speakers_of_a_single_window_are_two() -> None:
    talk = made_talk([(0.5, 4.0, 0), (4.5, 7.0, 1), (7.5, 9.5, 0)])
    linked = link(talk.voices)
    assert linked.speakers == 2
    assert not linked.notes


def test_the_map_is_that_of_the_formula() -> None:
    voices = made_talk(taking_turns(2, 40.0)).voices
    units = voices.embeddings
    scores = (units @ units.T) / 0.2 + voices.seconds.log()
    made = link(voices, temperature=0.2).map
    torch.testing.assert_close(made.to_dense(), scores.softmax(-1), rtol=1e-5, atol=1e-6)


@given(
    seed=st.integers(0, 500),
    people=st.integers(1, 4),
    asked=st.none() | st.integers(1, 6),
    noise=st.floats(0, 3),
)
@settings(max_examples=25, deadline=None)
def test_two_of_one_window_never_have_one_speaker(
    seed: int, people: int, asked: int | None, noise: float
) -> None:
    talk = made_talk(taking_turns(people, 30.0, 2.5), noise=noise, seed=seed)
    linked = link(talk.voices, speakers=asked)
    for window in talk.voices.window.unique():
        found = linked.cluster[talk.voices.window == window].tolist()
        assert len(set(found)) == min(len(found), linked.speakers)
    if asked is not None:
        assert set(linked.cluster.tolist()) == set(range(min(asked, len(talk.speaker))))


@given(seed=st.integers(0, 500))
@settings(max_examples=15, deadline=None)
def test_names_aside_the_order_of_windows_does_not_matter(seed: int) -> None:
    talk = made_talk(taking_turns(3, 40.0), noise=1.5, seed=seed)
    voices = talk.voices
    # Windows in another order, voices of one window together.
    places = torch.randperm(
        int(voices.window.max()) + 1, generator=torch.Generator().manual_seed(seed)
    )
    order = torch.cat([(voices.window == window).nonzero()[:, 0] for window in places])
    shuffled = replace(voices, **{name: part[order] for name, part in vars(voices).items()})
    assert agrees(link(voices).cluster[order], link(shuffled).cluster)


def test_fewer_speakers_than_voices_in_a_window() -> None:
    talk = made_talk(taking_turns(3, 60.0))
    linked = link(talk.voices, speakers=1)
    assert linked.speakers == 1
    assert not linked.cluster.any()
    shared = len(talk.speaker) - int(talk.voices.window.max()) - 1
    assert linked.notes == (
        f"{shared} of {len(talk.speaker)} voices share a speaker with another of their window: "
        "more people seem to speak within ten seconds than the 1 of the whole recording.",
    )
    # Nothing of what is said is lost.
    assert len(turns_of(talk.activity, talk.voices, linked).turns) == len(talk.turns)


def test_more_speakers_than_voices() -> None:
    talk = made_talk([(0.0, 5.0, 0), (5.0, 9.0, 1)])
    linked = link(talk.voices, min_speakers=7)
    assert linked.speakers == len(talk.speaker) == 2
    assert linked.notes == ("speakers asked for: 7; told apart: 2, as there are no more voices.",)


def test_nobody() -> None:
    linked = link(silent_talk().voices)
    assert linked.speakers == 0
    assert linked.map.shape == (0, 0)
    assert linked.cluster.tolist() == []
    assert linked.notes == ()


def test_short_voices_make_no_clusters_but_are_assigned() -> None:
    talk = made_talk(taking_turns(2, 60.0))
    voices = talk.voices
    generator = torch.Generator().manual_seed(9)
    # A voice of half a second that sounds like nobody.
    odd = torch.nn.functional.normalize(torch.randn(1, 192, generator=generator), dim=1)
    more = Voices(
        torch.cat([voices.embeddings, odd]),
        torch.cat([voices.window, voices.window.max()[None] + 1]),
        torch.cat([voices.local, torch.zeros(1, dtype=torch.long)]),
        torch.cat([voices.seconds, torch.tensor([0.5])]),
        torch.cat([voices.spans, torch.tensor([[59.0, 59.5]])]),
    )
    linked = link(more)
    assert linked.speakers == 2
    assert int(linked.cluster[-1]) in (0, 1)


def test_a_long_talk_needs_no_matrix_of_all_pairs(
    forbid_dense: ForbidDense, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = made_talk(taking_turns(3, 1200.0, 5.0))
    voices = len(talk.speaker)
    assert voices > 1100
    monkeypatch.setattr(linking, "MOST_CLUSTERED", 400)
    with forbid_dense(voices * voices // 2), heedmap.dense_budget(0):
        linked = link(talk.voices)
    assert agrees(linked.cluster, talk.speaker)


def test_projections_that_have_learned_nothing_change_nothing() -> None:
    voices = made_talk(taking_turns(3, 60.0), noise=1.0).voices
    plain, projected = link(voices), link(voices, projections=Projections())
    assert torch.equal(plain.cluster, projected.cluster)
    torch.testing.assert_close(plain.map.to_dense(), projected.map.to_dense())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"temperature": 0.0}, "temperature must be above 0; got 0.0"),
        ({"temperature": float("nan")}, "temperature must be above 0; got nan"),
        ({"threshold": 2.5}, "threshold must be a cosine distance, from 0 to 2; got 2.5"),
        ({"speakers": 0}, "speakers must be a number of people"),
    ],
)
def test_numbers_that_make_no_sense(given: dict[str, float], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        link(silent_talk().voices, **given)
