import pytest
import torch

from heedmap.errors import ArgumentError
from heedmap.speech.assigning import turns_of
from heedmap.speech.evidence import evidence_of
from heedmap.speech.linking import link

from ..conftest import ForbidDense
from .made_talk import Talk, made_talk, silent_talk, taking_turns


def heard_within(talk: Talk, linked, assigned) -> torch.Tensor:
    """Return how many frames each voice is heard in each turn of its speaker."""
    activity = talk.activity
    shares = torch.zeros(len(talk.speaker), len(assigned.turns))
    for voice in range(len(talk.speaker)):
        window, local = int(talk.voices.window[voice]), int(talk.voices.local[voice])
        for place, turn in enumerate(assigned.turns):
            if assigned.names.index(turn.speaker) != int(linked.cluster[voice]):
                continue
            for frame in activity.active[window, :, local].nonzero()[:, 0].tolist():
                middle = activity.first_frame_seconds + activity.frame_seconds * (
                    int(activity.start_frames[window]) + frame + 0.5
                )
                shares[voice, place] += turn.start_seconds < middle < turn.end_seconds
    return shares


def test_weights_are_the_sums_of_the_dense_map() -> None:
    talk = made_talk([*taking_turns(3, 18.0), (15.0, 20.0, 1)], noise=1.5)
    linked = link(talk.voices)
    assigned = turns_of(talk.activity, talk.voices, linked)
    shares = heard_within(talk, linked, assigned)
    looking = shares / shares.sum(0)
    looked_at = shares / shares.sum(1, keepdim=True)
    wanted = looking.T @ linked.map.to_dense() @ looked_at.nan_to_num()
    turns = assigned.turns
    found = evidence_of(talk.activity, talk.voices, linked, assigned, most=len(turns))
    assert [each.turn for each in found] == list(turns)
    for row, each in enumerate(found):
        assert each.own_weight == pytest.approx(float(wanted[row, row]), abs=1e-5)
        for looks, columns in (
            (each.earlier, range(row)),
            (each.later, range(row + 1, len(turns))),
        ):
            strong = [c for c in columns if wanted[row, c] >= 0.005]
            strong.sort(key=lambda column: -float(wanted[row, column]))
            assert [look.turn for look in looks] == [turns[column] for column in strong]
            weights = [float(wanted[row, column]) for column in strong]
            assert [look.weight for look in looks] == pytest.approx(weights, abs=1e-5)


def test_margins_are_differences_of_cosines() -> None:
    talk = made_talk(taking_turns(3, 40.0), noise=1.0)
    linked = link(talk.voices)
    assigned = turns_of(talk.activity, talk.voices, linked)
    shares = heard_within(talk, linked, assigned)
    alike = (shares / shares.sum(0)).T @ linked.similarity
    for row, each in zip(
        alike, evidence_of(talk.activity, talk.voices, linked, assigned), strict=True
    ):
        own = assigned.names.index(each.turn.speaker)
        others = [float(row[n]) for n in range(len(row)) if n != own]
        assert each.margin == pytest.approx(float(row[own]) - max(others), abs=1e-5)
        assert each.margin > 0.3


def test_a_turn_looks_at_its_own_speaker() -> None:
    talk = made_talk(taking_turns(2, 60.0, 5.0))
    linked = link(talk.voices)
    assigned = turns_of(talk.activity, talk.voices, linked)
    found = evidence_of(talk.activity, talk.voices, linked, assigned)
    assert len(found) == len(talk.turns)
    for each in found:
        looks = [*each.earlier, *each.later]
        assert looks
        assert len(each.earlier) <= 3
        assert len(each.later) <= 3
        assert all(look.turn.speaker == each.turn.speaker for look in looks)
        assert all(look.turn < each.turn for look in each.earlier)
        assert all(look.turn > each.turn for look in each.later)
    assert found[0].earlier == ()
    assert found[-1].later == ()


def test_one_speaker_has_no_margin() -> None:
    talk = made_talk(taking_turns(1, 30.0))
    linked = link(talk.voices)
    assigned = turns_of(talk.activity, talk.voices, linked)
    found = evidence_of(talk.activity, talk.voices, linked, assigned, most=0)
    assert {each.margin for each in found} == {None}
    assert {each.earlier + each.later for each in found} == {()}


def test_nobody() -> None:
    talk = silent_talk()
    linked = link(talk.voices)
    assigned = turns_of(talk.activity, talk.voices, linked)
    assert evidence_of(talk.activity, talk.voices, linked, assigned) == ()


def test_long_talk_needs_no_matrix_of_all_pairs(forbid_dense: ForbidDense) -> None:
    talk = made_talk(taking_turns(3, 600.0, 5.0))
    linked = link(talk.voices)
    assigned = turns_of(talk.activity, talk.voices, linked)
    voices = len(talk.speaker)
    with forbid_dense(voices * voices // 2):
        found = evidence_of(talk.activity, talk.voices, linked, assigned)
    assert len(found) == len(assigned.turns)


def test_a_number_that_makes_no_sense() -> None:
    talk = silent_talk()
    linked = link(talk.voices)
    assigned = turns_of(talk.activity, talk.voices, linked)
    with pytest.raises(ArgumentError, match="most must be a number of turns, 0 or more; got -1"):
        evidence_of(talk.activity, talk.voices, linked, assigned, most=-1)


def test_among_very_many_turns_small_weights_are_named() -> None:
    talk = made_talk(taking_turns(2, 1200.0, 2.0))
    linked = link(talk.voices)
    found = evidence_of(
        talk.activity, talk.voices, linked, turns_of(talk.activity, talk.voices, linked)
    )
    assert len(found) == 600
    strongest = [(*each.earlier, *each.later)[0] for each in found]
    assert all(1 / 600 <= look.weight < 0.02 for look in strongest)
    assert all(
        look.turn.speaker == each.turn.speaker for look, each in zip(strongest, found, strict=True)
    )
