"""From speakers of windows to turns: the windows laid over each other.

Each moment lies in several windows, and each says who speaks. How many speak is the mean over the
windows, rounded; who it is, those whom most windows name. So overlap goes to both.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from heedmap.speech.activity import LocalActivity
from heedmap.speech.clusters import NOBODY
from heedmap.speech.linking import Linked
from heedmap.speech.turns import Turn, merged, without_short
from heedmap.speech.voices import Voices

GAP_SECONDS = 0.1
LEAST_TURN_SECONDS = 0.1
"""What is shorter than a tenth of a second, a pause or a turn, is chance."""

AT_ONCE = 2
"""The segmentation never hears more people at once."""


@dataclass(frozen=True)
class Assigned:
    """Who speaks when.

    Attributes:
        turns: In order.
        names: The name of each speaker of the `Linked`, by number; of those who have no turn, too.
    """

    turns: tuple[Turn, ...]
    names: tuple[str, ...]


def turns_of(
    activity: LocalActivity,
    voices: Voices,
    linked: Linked,
    *,
    all_speakers: bool = False,
    gap_seconds: float = GAP_SECONDS,
    least_seconds: float = LEAST_TURN_SECONDS,
) -> Assigned:
    """Return who speaks from when to when, named in the order of first appearance.

    Args:
        activity: Who is heard in each window.
        voices: The voices of these windows.
        linked: Whose they are.
        all_speakers: Whether a speaker to whom the windows leave nothing gets what the longest of
            their voices says, so that as many speak as were asked for.
        gap_seconds: How long a pause of one speaker may be that is closed.
        least_seconds: How long a turn lasts, at least.

    Cost: one pass over the windows; memory of 2 bytes for each frame and speaker, 8 MB for an hour
    and 20 speakers.
    """
    speaker_of = _speakers_of_windows(activity, voices, linked)
    heard = _heard(activity, speaker_of, linked.speakers)
    turns = [
        (speaker, turn)
        for speaker in range(linked.speakers)
        for turn in without_short(
            merged(_runs(heard[:, speaker], activity), gap_seconds), least_seconds
        )
    ]
    if all_speakers:
        for speaker in sorted(set(range(linked.speakers)) - {speaker for speaker, _ in turns}):
            turns += [(speaker, turn) for turn in _longest_voice(activity, voices, linked, speaker)]
    turns.sort(key=lambda found: (found[1].start_seconds, found[1].end_seconds, found[0]))
    order = list(dict.fromkeys(speaker for speaker, _ in turns))
    order += sorted(set(range(linked.speakers)) - set(order))
    names = [""] * linked.speakers
    for place, speaker in enumerate(order, start=1):
        names[speaker] = f"speaker {place}"
    named = [Turn(t.start_seconds, t.end_seconds, names[speaker]) for speaker, t in turns]
    return Assigned(tuple(sorted(named)), tuple(names))


def _speakers_of_windows(
    activity: LocalActivity, voices: Voices, linked: Linked
) -> Int[Tensor, "windows 3"]:
    """Return whose each of the three speakers of every window is."""
    speaker_of = torch.full((len(activity.active), activity.active.shape[2]), NOBODY)
    speaker_of[voices.window, voices.local] = linked.cluster
    return speaker_of


def _heard(
    activity: LocalActivity, speaker_of: Int[Tensor, "windows 3"], speakers: int
) -> Bool[Tensor, "frames speakers"]:
    """Return in which frames of the whole sound each speaker is heard."""
    frames, length = activity.frames, activity.active.shape[1]
    # The middle of a window has been heard with more around it than its ends; and windows that
    # contradict each other never have the same say.
    say = torch.hamming_window(length, periodic=False)
    votes = torch.zeros(frames + length, speakers)
    people, windows = torch.zeros(2, frames + length)
    for start, window, owners in zip(
        activity.start_frames.tolist(), activity.active, speaker_of.tolist(), strict=True
    ):
        place = slice(start, start + length)
        windows[place] += say
        for speaker in set(owners) - {NOBODY}:
            own = [local for local, owner in enumerate(owners) if owner == speaker]
            amount = say * window[:, own].any(1)
            votes[place, speaker] += amount
            people[place] += amount
    number = (people / windows.clamp(min=1e-3) + 0.5).floor()
    best = votes.topk(min(AT_ONCE, speakers), dim=1)
    heard = torch.zeros_like(votes, dtype=torch.bool)
    wanted = torch.arange(best.indices.shape[1]) < number[:, None]
    heard.scatter_(1, best.indices, wanted & (best.values > 0))
    return heard[:frames]


def _runs(heard: Bool[Tensor, " frames"], activity: LocalActivity, first: int = 0) -> list[Turn]:
    """Return the stretches of frames that are marked, as turns of nobody in particular."""
    edges = torch.nn.functional.pad(heard.int(), (1, 1)).diff()
    begins, ends = (edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]
    offset = activity.first_frame_seconds
    return [
        Turn(
            offset + (first + begin) * activity.frame_seconds,
            min(offset + (first + end) * activity.frame_seconds, activity.duration_seconds),
            "",
        )
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


def _longest_voice(
    activity: LocalActivity, voices: Voices, linked: Linked, speaker: int
) -> list[Turn]:
    """Return what the longest voice of a speaker says in its window."""
    own = voices.seconds.masked_fill(linked.cluster != speaker, -1)
    voice = int(own.argmax())
    window = int(voices.window[voice])
    said = activity.active[window, :, int(voices.local[voice])]
    return merged(_runs(said, activity, int(activity.start_frames[window])), GAP_SECONDS)
