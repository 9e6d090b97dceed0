"""The whole walk of hearing: listen, link, assign, give reasons, write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedmap.analysis.word_times import Word
from heedmap.attention_map import AttentionMap
from heedmap.axes import Axis
from heedmap.errors import ArgumentError
from heedmap.layers import Layer
from heedmap.media import SoundBlocks
from heedmap.models.embedding import EMBEDDING_FEATURES
from heedmap.models.hub import load_audio_model
from heedmap.models.packages import Progress
from heedmap.plot.ticks import clock
from heedmap.seen import Seen
from heedmap.speech.annotation import to_annotation
from heedmap.speech.assigning import turns_of
from heedmap.speech.clusters import SpeakerCount, require_scipy
from heedmap.speech.evidence import Evidence, evidence_of
from heedmap.speech.kinds import FrameKinds, KindName
from heedmap.speech.linking import link
from heedmap.speech.listening import Listened, listen
from heedmap.speech.moments import moments_of
from heedmap.speech.projections import Projections
from heedmap.speech.spoken import words_of
from heedmap.speech.summary import summary_of
from heedmap.speech.turns import Turn
from heedmap.speech.writing import plot, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyannote.core import Annotation

TOLD_SECONDS = 120.0
"""Progress is told every so many seconds of the recording."""


@dataclass(frozen=True, eq=False)
class Heard:
    """Who speaks when in a recording, what else is heard, and which moments say so.

    Attributes:
        name: What the recording is called.
        duration_seconds: How long it is.
        turns: Who speaks from when to when, in order.
        speakers: The speakers, in the order of their first turns.
        kinds: What is heard in each 20 ms: background, speech, music, overlap.
        evidence: For each turn, in their order, the turns that it looked at, and its margin.
        links: How much each voice looks at each, ``[voices, voices]``; a voice is what is heard of
            one speaker in one window of ten seconds. ``links.explore(axis=moments, media=path)``
            opens it with the sound.
        moments: For each voice the moment that stands for it, in seconds, with its speaker as
            label; they come in the order of time.
        words: What is said, if that was asked for.
        notes: Remarks for people.
    """

    name: str
    duration_seconds: float
    turns: tuple[Turn, ...]
    speakers: tuple[str, ...]
    kinds: FrameKinds
    evidence: tuple[Evidence, ...]
    links: AttentionMap
    moments: Axis
    words: tuple[Word, ...] | None
    notes: tuple[str, ...]

    def spans(self, kind: KindName) -> list[tuple[float, float]]:
        """Return the stretches, in seconds, in which background, speech, music or overlap is heard.

        The last of the frames of 20 ms may reach beyond the recording; the stretches do not.
        """
        end = self.duration_seconds
        found = self.kinds.spans(kind)
        return [(start, min(stop, end)) for start, stop in found if start < end]

    def to_annotation(self) -> Annotation:
        """Return the turns as an annotation of pyannote.

        Raises:
            MissingExtraError: if pyannote.core is not installed.
        """
        return to_annotation(self.turns, Path(self.name).stem)

    def summary(self) -> dict[str, Any]:
        """Return everything but the map as plain values; see `heedmap.speech.summary`."""
        return summary_of(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Return axes with a row of turns for each speaker, and what else is heard above them.

        Of the three least sure turns there are arcs to the two turns that each looked at most.

        Args:
            ax: Where to draw; on a figure of its own without it.

        Raises:
            MissingExtraError: if matplotlib is not installed.
        """
        return plot(self, ax)

    def write(self, folder: str | Path, *, force: bool = False) -> None:
        """Write ``speakers.rttm``, ``.vtt``, ``.json`` and ``.png`` into a folder, all or none.

        Args:
            folder: Where; it is made if it is not there.
            force: Whether to replace such files of an earlier time.

        Raises:
            InputError: for a folder that cannot be written, or that holds such files already.
            MissingExtraError: if matplotlib or webvtt-py is not installed.
        """
        write(self, Path(folder), force=force)

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the map of the voices as a recording, which `heedmap.open` opens.

        ``heedmap explore FOLDER --media RECORDING`` shows it, and plays the moments of both sides.

        Args:
            folder: Where; it must not exist yet.
            force: Whether to replace a recording that is there.

        Raises:
            ArgumentError: if there is no voice.
            InputError: for a folder that exists or cannot be written.
            MissingExtraError: if safetensors is missing.
        """
        layer = Layer("voices", "self", 0, 1, self.links[None, None])
        layers = [layer] if self.moments.labels else []
        Seen(lambda: layers, model="CAM++ voices").save(folder, axis=self.moments, force=force)


def hear(
    path: str | Path,
    *,
    speakers: int | None = None,
    min_speakers: int | None = None,
    max_speakers: int | None = None,
    words: bool = False,
    channel: int | None = None,
    projections: Projections | str | Path | None = None,
    progress: Progress = lambda _: None,
) -> Heard:
    """Return who speaks when in a recording, what else is heard, and which moments say so.

    Args:
        path: A sound, or a film with a sound track, of any length.
        speakers: Exactly so many speakers; the number is found without it.
        min_speakers: At least so many.
        max_speakers: At most so many.
        words: Whether to write down what is said, too; in English.
        channel: The one channel to take, counted from 0, instead of the mean of all.
        projections: Learned ones for the attention that links voices, or their file; the voices
            themselves are query, key and value without.
        progress: Called with a line of text before something slow begins, and meanwhile.

    Returns:
        What is heard. Nobody speaking is no error: there are no turns then, and a note says so.

    Raises:
        ArgumentError: for numbers of speakers that make no sense, or projections for other voices.
        InputError: for a file that is no sound, or without such a channel.
        FetchError, ModelError: if the models cannot be had.
        MissingExtraError: if an optional package is not installed.

    Cost: 0.1 of the length of the recording on two cores, or less; memory below 1 GB for an hour.
        Writing words down takes several times that time.
    """
    # What is wrong or missing is said before the recording is listened to.
    SpeakerCount.of(speakers, min_speakers, max_speakers)
    require_scipy()
    if words:
        load_audio_model(None, progress)
    if isinstance(projections, str | Path):
        projections = Projections.load(Path(projections))
    if projections is not None and projections.features != EMBEDDING_FEATURES:
        raise ArgumentError(
            f"projections must be for voices of {EMBEDDING_FEATURES} numbers; got some for "
            f"{projections.features}. Train them with heedmap train hear."
        )
    source = Path(path)
    progress(f"Hearing {source.name or source} …")
    found = listen(source, channel=channel, progress=progress, on_seconds=_Teller(progress))
    heard = heard_of(
        source.name,
        found,
        speakers=speakers,
        min_speakers=min_speakers,
        max_speakers=max_speakers,
        projections=projections,
    )
    if not words:
        return heard
    blocks = SoundBlocks(source, channel=channel)
    peak = max((float(block.abs().max()) for block in blocks), default=1.0)
    said = words_of(blocks, heard.turns, name=heard.name, peak=peak, progress=progress)
    notes = () if said or not heard.turns else ("no words could be written down",)
    return replace(heard, words=tuple(said), notes=(*heard.notes, *notes))


def heard_of(
    name: str,
    found: Listened,
    *,
    speakers: int | None = None,
    min_speakers: int | None = None,
    max_speakers: int | None = None,
    projections: Projections | None = None,
) -> Heard:
    """Return what is heard in a recording that was listened to.

    Args:
        name: What the recording is called.
        found: What was found in it.
        speakers: Exactly so many speakers.
        min_speakers: At least so many.
        max_speakers: At most so many.
        projections: Learned ones.
    """
    linked = link(
        found.voices,
        projections=projections,
        speakers=speakers,
        min_speakers=min_speakers,
        max_speakers=max_speakers,
    )
    activity, voices = found.activity, found.voices
    wanted = speakers is not None or min_speakers is not None
    assigned = turns_of(activity, voices, linked, all_speakers=wanted)
    moments, order = moments_of(activity, voices, linked, assigned)
    names = tuple(dict.fromkeys(turn.speaker for turn in assigned.turns))
    links = linked.map[order][:, order]
    assert isinstance(links, AttentionMap)
    silent = () if assigned.turns else ("nobody speaks, as far as could be heard",)
    return Heard(
        name=name,
        duration_seconds=activity.duration_seconds,
        turns=assigned.turns,
        speakers=names,
        kinds=found.kinds,
        evidence=evidence_of(activity, voices, linked, assigned),
        links=links,
        moments=moments,
        words=None,
        notes=(*found.notes, *linked.notes, *silent),
    )


class _Teller:
    """Says every two minutes of the recording how far it has been heard."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._next_seconds = TOLD_SECONDS

    def __call__(self, seconds: float) -> None:
        if seconds >= self._next_seconds:
            self._progress(f"Heard {clock(seconds, seconds)} …")
            self._next_seconds = (seconds // TOLD_SECONDS + 1) * TOLD_SECONDS
