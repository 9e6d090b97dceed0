"""Turns as an ``Annotation`` of pyannote, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from heedmap.errors import MissingExtraError
from heedmap.speech.turns import Turn

if TYPE_CHECKING:
    from pyannote.core import Annotation


def to_annotation(turns: Iterable[Turn], file: str | None = None) -> Annotation:
    """Return the turns as an annotation, one track for each.

    Args:
        turns: Who speaks when.
        file: The name of the recording, pyannote's ``uri``.

    Raises:
        MissingExtraError: if pyannote.core is not installed.

    Example:
        >>> to_annotation([Turn(0.0, 1.5, "speaker 1")], "talk").label_duration("speaker 1")
        1.5
    """
    try:
        from pyannote.core import Annotation, Segment
    except ImportError:
        raise MissingExtraError("pyannote.core", "speech") from None

    annotation = Annotation(uri=file)
    for track, turn in enumerate(sorted(turns)):
        annotation[Segment(turn.start_seconds, turn.end_seconds), track] = turn.speaker
    return annotation


def from_annotation(annotation: Annotation) -> list[Turn]:
    """Return the turns of an annotation, in order; labels become texts.

    Raises:
        ArgumentError: for a segment that begins before 0.

    Example:
        >>> from_annotation(to_annotation([Turn(0.0, 1.5, "speaker 1")]))
        [Turn(start_seconds=0.0, end_seconds=1.5, speaker='speaker 1')]
    """
    return sorted(
        Turn(float(track[0].start), float(track[0].end), str(track[-1]))
        for track in annotation.itertracks(yield_label=True)
    )
