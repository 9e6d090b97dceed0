from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedmap.attention_map import AttentionMap
from heedmap.speech.assigning import turns_of
from heedmap.speech.linking import Linked, link
from heedmap.speech.turns import Turn, speakers_of

from .made_talk import Talk, made_talk, silent_talk, taking_turns

FRAME = 0.017


def truly_linked(talk: Talk) -> Linked:
    """Return whose the voices are, without attention."""
    similarity = torch.nn.functional.one_hot(talk.speaker).float()
    voices = len(talk.speaker)
    return Linked(AttentionMap.from_weights(torch.eye(voices)), talk.speaker, similarity)


def close(found: tuple[Turn, ...], wanted: tuple[Turn, ...]) -> bool:
    return len(found) == len(wanted) and all(
        a.speaker == b.speaker
        and abs(a.start_seconds - b.start_seconds) < 2 * FRAME + 0.03
        and abs(a.end_seconds - b.end_seconds) < 2 * FRAME + 0.03
        for a, b in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("people", [1, 2, 3, 4])
def test_windows_become_the_turns_that_they_were_cut_from(people: int) -> None:
    talk = made_talk(taking_turns(people, 60.0, 4.0))
    assigned = turns_of(talk.activity, talk.voices, link(talk.voices))
    assert close(assigned.turns, talk.turns)
    assert sorted(assigned.names) == [f"speaker {n + 1}" for n in range(people)]


def test_overlap_is_given_to_both() -> None:
    talk = made_talk([(0.0, 8.0, 0), (6.0, 14.0, 1), (12.0, 20.0, 0), (21.0, 30.0, 1)])
    assigned = turns_of(talk.activity, talk.voices, truly_linked(talk))
    assert close(assigned.turns, talk.turns)


def test_pauses_are_closed_and_short_turns_dropped() -> None:
    talk = made_talk(
        [(1.0, 5.0, 0), (5.07, 9.0, 0), (9.5, 15.0, 1), (15.02, 15.09, 0), (16.0, 25.0, 1)]
    )
    assigned = turns_of(talk.activity, talk.voices, truly_linked(talk))
    wanted = (
        Turn(1.0, 9.0, "speaker 1"),
        Turn(9.5, 15.0, "speaker 2"),
        Turn(16.0, 25.0, "speaker 2"),
    )
    assert close(assigned.turns, wanted)
    kept = turns_of(
        talk.activity, talk.voices, truly_linked(talk), gap_seconds=0.0, least_seconds=0.0
    )
    assert close(kept.turns, talk.turns)


def test_a_voice_that_was_left_out_has_no_turn() -> None:
    talk = made_talk(taking_turns(2, 40.0, 4.0))
    linked = truly_linked(talk)
    one = replace(
        linked,
        cluster=linked.cluster.masked_fill(linked.cluster == 1, -1),
        similarity=linked.similarity[:, :1],
    )
    assigned = turns_of(talk.activity, talk.voices, one)
    assert close(assigned.turns, tuple(t for t in talk.turns if t.speaker == "speaker 1"))


def test_speakers_to_whom_the_windows_leave_nothing() -> None:
    talk = made_talk(taking_turns(2, 40.0, 4.0))
    linked = truly_linked(talk)
    # One window says that a third person speaks; all others know better.
    cluster = linked.cluster.clone()
    cluster[len(cluster) // 2] = 2
    third = torch.zeros(len(cluster), 1)
    three = replace(linked, cluster=cluster, similarity=torch.cat([linked.similarity, third], 1))
    usual = turns_of(talk.activity, talk.voices, three)
    assert speakers_of(usual.turns) == ("speaker 1", "speaker 2")
    assert usual.names == ("speaker 1", "speaker 2", "speaker 3")
    asked = turns_of(talk.activity, talk.voices, three, all_speakers=True)
    assert set(speakers_of(asked.turns)) == {"speaker 1", "speaker 2", "speaker 3"}
    assert sorted(asked.names) == ["speaker 1", "speaker 2", "speaker 3"]


@given(seed=st.integers(0, 300), people=st.integers(1, 4), asked=st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_as_many_speakers_as_asked_for_speak(seed: int, people: int, asked: int) -> None:
    talk = made_talk(taking_turns(people, 30.0, 2.5), noise=2.0, seed=seed)
    linked = link(talk.voices, speakers=asked)
    assigned = turns_of(talk.activity, talk.voices, linked, all_speakers=True)
    wanted = min(asked, len(talk.speaker))
    assert len(speakers_of(assigned.turns)) == wanted
    assert sorted(assigned.names) == sorted(f"speaker {n + 1}" for n in range(wanted))
    assert list(assigned.turns) == sorted(assigned.turns)
    assert speakers_of(assigned.turns) == tuple(f"speaker {n + 1}" for n in range(wanted))
    assert all(turn.end_seconds <= talk.activity.duration_seconds for turn in assigned.turns)


def test_nobody() -> None:
    talk = silent_talk()
    assigned = turns_of(talk.activity, talk.voices, link(talk.voices), all_speakers=True)
    assert assigned.turns == assigned.names == ()
