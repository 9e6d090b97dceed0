"""What projections learn from: the voices of conversations that were made, with whose they are."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedmap.errors import ArgumentError
from heedmap.models.packages import Progress
from heedmap.speech.activity import LocalActivity
from heedmap.speech.simulation import simulate
from heedmap.speech.turns import Turn
from heedmap.speech.voices import Voices, make_voices
from heedmap.speech.windows import STEP_FRAMES, WINDOW_FRAMES

CONVERSATION_SECONDS = 60.0
SPEAKERS = (2, 3, 4)
OVERLAP_SHARES = (0.0, 0.05, 0.1, 0.2)
NOISE_SNR_DB = (None, 30.0, 20.0, 15.0)
_DRAWS = 5

Voiced = Mapping[str, Sequence[Tensor | Path]]
"""Clips of each speaker, who have names. All are recorded in one way, so that it does not tell them
apart: at the telephone, or not."""

SHARING_WINDOWS = -(-WINDOW_FRAMES // STEP_FRAMES)
"""Windows that are nearer to each other than so many have sound in common."""


@dataclass(frozen=True, eq=False)
class Example:
    """The voices of a conversation, and whose they truly are.

    Attributes:
        embeddings: What each voice sounds like, of length 1.
        seconds: How long it was heard alone.
        window: In which window it was heard.
        truth: How much of it each speaker says; rows add up to 1, or to 0 where nobody speaks.
        speakers: Their names.
        pool: Where these speakers come from; only conversations of one pool are comparable.
    """

    embeddings: Float[Tensor, "voices features"]
    seconds: Float[Tensor, " voices"]
    window: Int[Tensor, " voices"]
    truth: Float[Tensor, "voices speakers"]
    speakers: tuple[str, ...]
    pool: int = 0


def example_of(
    activity: LocalActivity, voices: Voices, turns: Sequence[Turn], pool: int = 0
) -> Example:
    """Return the voices of a conversation with how much of each is truly whose.

    >>> activity = LocalActivity(torch.tensor([0]), torch.ones(1, 589, 3).bool(), 10.0)
    >>> one = torch.zeros(1, dtype=torch.long)
    >>> voices = Voices(torch.ones(1, 192), one, one, torch.ones(1), torch.tensor([[0.0, 10.0]]))
    >>> example_of(activity, voices, [Turn(0, 9, "a"), Turn(8, 9, "b")]).truth
    tensor([[0.9002, 0.0998]])
    """
    speakers = tuple(sorted({turn.speaker for turn in turns}))
    length = activity.active.shape[1]
    said = torch.zeros(activity.frames + length, len(speakers))
    for turn in turns:
        begin, end = (
            max(0, round((moment - activity.first_frame_seconds) / activity.frame_seconds))
            for moment in (turn.start_seconds, turn.end_seconds)
        )
        said[begin:end, speakers.index(turn.speaker)] = 1
    truth = torch.zeros(len(voices.window), len(speakers))
    for voice, (window, local) in enumerate(zip(voices.window, voices.local, strict=True)):
        start = int(activity.start_frames[window])
        heard = activity.active[window, :, local].float()
        truth[voice] = heard @ said[start : start + length]
    truth /= truth.sum(1, keepdim=True).clamp(min=1)
    return Example(voices.embeddings, voices.seconds, voices.window, truth, speakers, pool)


def joined(examples: Sequence[Example]) -> Example:
    """Return several conversations of one pool as one; who has one name is one speaker."""
    speakers = tuple(sorted({name for example in examples for name in example.speakers}))
    truths, windows, first = [], [], 0
    for example in examples:
        columns = torch.tensor([speakers.index(name) for name in example.speakers])
        truth = torch.zeros(len(example.truth), len(speakers))
        truths.append(truth.index_copy_(1, columns, example.truth))
        windows.append(example.window + first)
        first = int(windows[-1].max()) + 1 + SHARING_WINDOWS
    return Example(
        torch.cat([example.embeddings for example in examples]),
        torch.cat([example.seconds for example in examples]),
        torch.cat(windows),
        torch.cat(truths),
        speakers,
        examples[0].pool,
    )


def others(example: Example) -> Bool[Tensor, "voices voices"]:
    """Return which voices have no sound in common: what is learned is not to know sound again."""
    return (example.window[:, None] - example.window).abs() >= SHARING_WINDOWS


def make_example(pools: Sequence[Voiced], seed: str, progress: Progress | None = None) -> Example:
    """Return the example of one conversation, the same for the same seed.

    Args:
        pools: Clips of each speaker. Two to four speakers of one pool take part; larger pools come
            up more often.
        seed: Chooses all that is drawn.
        progress: Called with one line of text before something slow begins.

    Raises:
        ArgumentError: if no conversation can be made of these voices.
        FetchError, ModelError: if the models cannot be had.

    Cost: 4 s on one thread.
    """
    drawn = random.Random(seed)
    for attempt in range(_DRAWS):
        (pool,) = drawn.choices(range(len(pools)), [len(pool) for pool in pools])
        voices = pools[pool]
        names = drawn.sample(sorted(voices), min(drawn.choice(SPEAKERS), len(voices)))
        try:
            talk = simulate(
                {name: voices[name] for name in names},
                seconds=CONVERSATION_SECONDS,
                overlap_share=drawn.choice(OVERLAP_SHARES),
                seed=drawn.getrandbits(32),
                noise_snr_db=drawn.choice(NOISE_SNR_DB),
            )
        except ArgumentError:
            # Long clips and much overlap may not go together; others are drawn.
            if attempt == _DRAWS - 1:
                raise
            continue
        activity, heard = make_voices([talk.samples], progress=progress)
        example = example_of(activity, heard, talk.turns, pool)
        if len(example.seconds):
            return example
    raise ArgumentError(f"voices must be heard as speech; got none in {_DRAWS} conversations.")
