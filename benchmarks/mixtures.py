"""Conversations made of packaged voices, and what is heard in them.

Those that figures are reported on and those that settings are chosen by share no clip and no seed.
Two thirds of the latter are of other voices; the rest are of the same actors, in every other level
of the game. Nothing is trained on these.
"""

import itertools
import pickle
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heedmap.speech.listening import Listened, listen
from heedmap.speech.material import (
    MINOR_VOICES,
    REPORTED_VOICES,
    TELEPHONE_VOICES,
    packaged_music,
    packaged_voices,
)
from heedmap.speech.simulation import Conversation, simulate

SECONDS = 120
SPEAKERS = (2, 3, 4)
OVERLAPS = (0.0, 0.1, 0.25)
REPORTED_SEEDS = (1001, 1002, 1003)
DEVELOPMENT_SEEDS = (1, 2, 3)
MUSIC_DB = (0.0, 5.0, 10.0)
MUSIC_SPEAKERS, MUSIC_OVERLAP = 3, 0.1


@dataclass(frozen=True)
class Mixture:
    """What a conversation is made of."""

    voices: tuple[str, ...]
    overlap: float
    seed: int
    is_reported: bool = True
    music_db: float | None = None

    def made(self) -> Conversation:
        music = {}
        if self.music_db is not None:
            music = {"music": packaged_music(print), "music_snr_db": self.music_db}
        voices = {
            name: _of_levels(clips, self.is_reported) if name in REPORTED_VOICES else clips
            for name, clips in packaged_voices(self.voices, print).items()
        }
        return simulate(
            voices, seconds=SECONDS, overlap_share=self.overlap, seed=self.seed, **music
        )


@dataclass(frozen=True, eq=False)
class HeardMixture:
    """A conversation, without its sound, and what is heard in it."""

    mixture: Mixture
    truth: Conversation
    heard: Listened


def reported() -> list[Mixture]:
    """Return conversations of acted voices: three seeds by speakers and overlap."""
    return list(_crossed([tuple(REPORTED_VOICES)] * 3, REPORTED_SEEDS, is_reported=True))


def development() -> list[Mixture]:
    """Return conversations to choose by: of acted voices, of minor parts, of the telephone.

    Voices of one conversation have one bandwidth, so that it does not tell them apart.
    """
    pools = [tuple(REPORTED_VOICES), tuple(MINOR_VOICES), tuple(TELEPHONE_VOICES)]
    return list(_crossed(pools, DEVELOPMENT_SEEDS, is_reported=False))


def with_music(seeds: Iterable[int] = REPORTED_SEEDS) -> list[Mixture]:
    """Return conversations of acted voices with music, three seeds at each level."""
    names = tuple(REPORTED_VOICES)
    return [
        Mixture(
            tuple(random.Random(seed).sample(names, MUSIC_SPEAKERS)),
            MUSIC_OVERLAP,
            seed,
            music_db=level,
        )
        for level, seed in itertools.product(MUSIC_DB, seeds)
    ]


def _crossed(
    pools: list[tuple[str, ...]], seeds: Iterable[int], *, is_reported: bool
) -> Iterator[Mixture]:
    for speakers, overlap in itertools.product(SPEAKERS, OVERLAPS):
        for seed, pool in zip(seeds, pools, strict=True):
            # Of the same seed for each number of speakers and each overlap other voices and clips.
            own_seed = seed * 1000 + speakers * 100 + round(overlap * 100)
            enough = pool if len(pool) >= speakers else tuple(TELEPHONE_VOICES)
            names = random.Random(own_seed).sample(enough, speakers)
            yield Mixture(tuple(names), overlap, own_seed, is_reported)


def _of_levels(clips: list[Path], is_odd: bool) -> list[Path]:
    """Return the clips of every other level of the game, in the order of their names."""
    levels = sorted({clip.parent.parent.name for clip in clips})
    return [clip for clip in clips if levels.index(clip.parent.parent.name) % 2 == is_odd]


def heard(mixtures: list[Mixture], folder: Path | None) -> list[HeardMixture]:
    """Return what is heard in each; with a folder, what was heard is kept there for other runs."""
    return [_kept(mixture, folder) for mixture in mixtures]


def _kept(mixture: Mixture, folder: Path | None) -> HeardMixture:
    path = None
    if folder is not None:
        level = "" if mixture.music_db is None else f"-{mixture.music_db:g}-dB"
        path = folder / f"{mixture.seed}-{'-'.join(mixture.voices)}{level}.pickle"
        if path.exists():
            return pickle.loads(path.read_bytes())
    print(f"Hearing {len(mixture.voices)} voices, seed {mixture.seed} …", flush=True)
    talk = mixture.made()
    found = HeardMixture(
        mixture,
        Conversation(talk.samples[:0], talk.turns, talk.music_spans),
        listen([talk.samples]),
    )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(found))
    return found
