"""Talk that needs no sound: who is heard in each window, with embeddings drawn around speakers."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import normalize

from heedmap.speech.activity import LocalActivity
from heedmap.speech.turns import Turn
from heedmap.speech.voices import Voices
from heedmap.speech.windows import FIRST_FRAME_SECONDS, FRAME_SECONDS, STEP_FRAMES, WINDOW_FRAMES


@dataclass(frozen=True, eq=False)
class Talk:
    activity: LocalActivity
    voices: Voices
    speaker: Int[Tensor, " voices"]
    turns: tuple[Turn, ...]


def made_talk(turns: list[tuple[float, float, int]], *, noise: float = 0.5, seed: int = 0) -> Talk:
    """Return the talk in which speakers, numbered from 0, are heard from one second to another.

    Args:
        turns: Start, end and speaker.
        noise: How far embeddings lie from those of their speaker, of length 1, at one second.
        seed: Draws embeddings, and the order of the speakers of each window.
    """
    generator = torch.Generator().manual_seed(seed)
    people = max(speaker for _, _, speaker in turns) + 1
    end = max(stop for _, stop, _ in turns)
    frames = round(end / FRAME_SECONDS)
    heard = torch.zeros(max(frames, WINDOW_FRAMES), people, dtype=torch.bool)
    for start, stop, speaker in turns:
        heard[round(start / FRAME_SECONDS) : round(stop / FRAME_SECONDS), speaker] = True
    starts = [*range(0, len(heard) - WINDOW_FRAMES, STEP_FRAMES), len(heard) - WINDOW_FRAMES]
    centres = normalize(torch.randn(people, 192, generator=generator), dim=1)
    active = torch.zeros(len(starts), WINDOW_FRAMES, 3, dtype=torch.bool)
    rows, speakers = [], []
    for window, start in enumerate(starts):
        there = heard[start : start + WINDOW_FRAMES]
        present = there.any(0).nonzero()[:, 0]
        present = present[torch.randperm(len(present), generator=generator)].tolist()
        for local, speaker in enumerate(present[:3]):
            own = there[:, speaker]
            active[window, :, local] = own
            alone = own & (there.sum(1) == 1)
            seconds = max(float(alone.sum()) * FRAME_SECONDS, 0.01)
            places = own.nonzero()[:, 0] + start
            begin, stop = (
                FIRST_FRAME_SECONDS + frame * FRAME_SECONDS
                for frame in (int(places[0]), int(places[-1]) + 1)
            )
            drawn = torch.randn(192, generator=generator) / 192**0.5
            embedding = centres[speaker] + noise / max(seconds, 0.1) ** 0.5 * drawn
            rows.append((embedding, window, local, seconds, (begin, stop)))
            speakers.append(speaker)
    voices = Voices(
        torch.stack([normalize(row[0], dim=0) for row in rows]),
        torch.tensor([row[1] for row in rows]),
        torch.tensor([row[2] for row in rows]),
        torch.tensor([row[3] for row in rows]),
        torch.tensor([row[4] for row in rows]),
    )
    activity = LocalActivity(torch.tensor(starts), active, end)
    named = tuple(Turn(start, stop, f"speaker {who + 1}") for start, stop, who in sorted(turns))
    return Talk(activity, voices, torch.tensor(speakers), named)


def silent_talk(seconds: float = 20.0) -> Talk:
    """Return a talk in which nobody is heard."""
    nothing = torch.zeros(0, dtype=torch.long)
    voices = Voices(torch.zeros(0, 192), nothing, nothing, torch.zeros(0), torch.zeros(0, 2))
    active = torch.zeros(5, WINDOW_FRAMES, 3, dtype=torch.bool)
    activity = LocalActivity(torch.arange(5) * STEP_FRAMES, active, seconds)
    return Talk(activity, voices, nothing, ())


def taking_turns(people: int, seconds: float, turn_seconds: float = 3.0) -> list[tuple]:
    """Return people who speak one after the other, with pauses of half a second."""
    count = int(seconds / turn_seconds)
    return [(n * turn_seconds, (n + 1) * turn_seconds - 0.5, n % people) for n in range(count)]
