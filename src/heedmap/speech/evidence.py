"""Which other moments say whose a turn is: the map of voices, added up to turns.

A turn's row of the map is the mean of the rows of its voices, each for as long as it is heard in
the turn; what a voice is looked at goes to its turns, to each for as long as the voice is heard
there. So what a turn looks at adds up to 1, but for voices that are part of no turn.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedmap.errors import ArgumentError
from heedmap.speech.activity import LocalActivity
from heedmap.speech.assigning import Assigned
from heedmap.speech.linking import Linked
from heedmap.speech.turns import Turn
from heedmap.speech.voices import Voices

MOST_LOOKS = 3
LEAST_WEIGHT = 0.005
"""What is looked at less would read as 0 %; but among very many turns all weights are small, and
then those are named that get more than an even share."""

_TURNS_AT_ONCE = 32


@dataclass(frozen=True)
class Look:
    """Another turn that a turn looks at.

    Attributes:
        turn: The other turn.
        weight: How much of all that the looking turn looks at, from 0 to 1.
    """

    turn: Turn
    weight: float


@dataclass(frozen=True)
class Evidence:
    """What speaks for whose a turn is.

    Attributes:
        turn: The turn.
        earlier: The turns before it that it looks at most, the strongest first.
        later: Those after it.
        own_weight: How much it looks at itself.
        margin: How much more alike its voices are to its speaker than to the next likely one, a
            difference of cosines: above 0.5 is sure, around 0 is a guess. None where there is one
            speaker.
    """

    turn: Turn
    earlier: tuple[Look, ...]
    later: tuple[Look, ...]
    own_weight: float
    margin: float | None


def evidence_of(
    activity: LocalActivity,
    voices: Voices,
    linked: Linked,
    assigned: Assigned,
    *,
    most: int = MOST_LOOKS,
) -> tuple[Evidence, ...]:
    """Return for every turn what it looks at, in the order of the turns.

    Args:
        activity: Who is heard in each window.
        voices: The voices of these windows.
        linked: Whose they are, with the map.
        assigned: The turns that were made of them.
        most: How many earlier and how many later turns to name, at most.

    Raises:
        ArgumentError: if `most` is negative.

    Cost: each row of the map is read once or, at the joint of two turns, twice: O(voices²) time,
    a second for an hour; memory of 32 rows of turns.
    """
    if most < 0:
        raise ArgumentError(f"most must be a number of turns, 0 or more; got {most}.")
    if not assigned.turns:
        return ()
    shares = _shares(activity, voices, linked, assigned)
    looks = _looks(linked, shares)
    margins = _margins(linked, assigned, shares)
    return tuple(
        Evidence(
            turn,
            _strongest(assigned.turns, row, range(place), most),
            _strongest(assigned.turns, row, range(place + 1, len(row)), most),
            float(row[place]),
            margin,
        )
        for place, (turn, row, margin) in enumerate(
            zip(assigned.turns, looks, margins, strict=True)
        )
    )


class _Shares(NamedTuple):
    """How long voices are heard in turns of their speaker: a number for each pair that meets.

    Attributes:
        voice: Of each pair.
        turn: Of each pair.
        seconds: How long the voice is heard in the turn.
        turns: How many turns there are.
    """

    voice: Int[Tensor, " pairs"]
    turn: Int[Tensor, " pairs"]
    seconds: Float[Tensor, " pairs"]
    turns: int

    def of_turns(self) -> Float[Tensor, " pairs"]:
        """Return the seconds so that those of each turn add up to 1."""
        total = self.seconds.new_zeros(self.turns).index_add_(0, self.turn, self.seconds)
        return self.seconds / total[self.turn]

    def of_voices(self) -> Float[Tensor, " pairs"]:
        """Return the seconds so that those of each voice add up to 1."""
        total = self.seconds.new_zeros(int(self.voice.max()) + 1)
        total.index_add_(0, self.voice, self.seconds)
        return self.seconds / total[self.voice]


def _looks(linked: Linked, shares: _Shares) -> Iterator[Float[Tensor, " turns"]]:
    """Yield for each turn how much it looks at each."""
    of_turns, of_voices = shares.of_turns(), shares.of_voices()
    for start in range(0, shares.turns, _TURNS_AT_ONCE):
        size = min(_TURNS_AT_ONCE, shares.turns - start)
        inside = (shares.turn >= start) & (shares.turn < start + size)
        rows, place = shares.voice[inside].unique(return_inverse=True)
        looking = torch.zeros(size, len(rows))
        looking[shares.turn[inside] - start, place] = of_turns[inside]
        seen = looking @ linked.map[rows]
        added = torch.zeros(size, shares.turns)
        yield from added.index_add_(1, shares.turn, seen[:, shares.voice] * of_voices)


def _shares(activity: LocalActivity, voices: Voices, linked: Linked, assigned: Assigned) -> _Shares:
    own_turns: list[list[int]] = [[] for _ in assigned.names]
    numbers = {name: number for number, name in enumerate(assigned.names)}
    for place, turn in enumerate(assigned.turns):
        own_turns[numbers[turn.speaker]].append(place)
    begins = [_frame(turn.start_seconds, activity) for turn in assigned.turns]
    ends = [_frame(turn.end_seconds, activity) for turn in assigned.turns]
    pairs: list[tuple[int, int]] = []
    seconds: list[float] = []
    for voice, (window, local, speaker) in enumerate(
        zip(voices.window.tolist(), voices.local.tolist(), linked.cluster.tolist(), strict=True)
    ):
        heard = activity.active[window, :, local]
        start = int(activity.start_frames[window])
        before = torch.nn.functional.pad(heard.cumsum(0), (1, 0)).tolist()
        # A speaker's turns follow one another, so their ends are in order, too.
        first = bisect_left(own_turns[speaker], start + 1, key=ends.__getitem__)
        for place in own_turns[speaker][first:]:
            if begins[place] >= start + len(heard):
                break
            stop = before[min(ends[place] - start, len(heard))]
            frames = stop - before[max(begins[place] - start, 0)]
            if frames:
                pairs.append((voice, place))
                seconds.append(frames * activity.frame_seconds)
    voice, turn = torch.tensor(pairs, dtype=torch.long).view(-1, 2).T
    return _Shares(voice, turn, torch.tensor(seconds), len(assigned.turns))


def _frame(seconds: float, activity: LocalActivity) -> int:
    return round((seconds - activity.first_frame_seconds) / activity.frame_seconds)


def _margins(linked: Linked, assigned: Assigned, shares: _Shares) -> list[float | None]:
    """Return how sure the speaker of each turn is."""
    if linked.speakers < 2:
        return [None] * shares.turns
    alike = torch.zeros(shares.turns, linked.speakers)
    parts = linked.similarity[shares.voice] * shares.of_turns()[:, None]
    alike.index_add_(0, shares.turn, parts)
    numbers = {name: number for number, name in enumerate(assigned.names)}
    own = torch.tensor([numbers[turn.speaker] for turn in assigned.turns])[:, None]
    others = alike.scatter(1, own, -torch.inf).amax(1)
    return (alike.gather(1, own)[:, 0] - others).tolist()


def _strongest(
    turns: tuple[Turn, ...], row: Float[Tensor, " turns"], among: range, most: int
) -> tuple[Look, ...]:
    least = min(LEAST_WEIGHT, 1 / len(turns))
    found = row[among.start : among.stop].topk(min(most, len(among)))
    return tuple(
        Look(turns[among.start + place], weight)
        for weight, place in zip(found.values.tolist(), found.indices.tolist(), strict=True)
        if weight >= least
    )
