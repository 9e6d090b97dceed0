"""What the positions of one side of a map are: tokens, moments, frames.

A map knows positions by number only. An `Axis` says what a number stands for, so that a table, a
picture, and a question (“the second 他”, “12.5s”) can speak of tokens and seconds. A `Sequence` is
an axis together with one row of values for each position.
"""

import re
from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from heedmap.errors import InputError, ShapeError

Kind = Literal["position", "token", "audio", "video"]


@dataclass(frozen=True)
class Location:
    """Where a question was found: the positions that hold it, and a remark when it is not exact."""

    positions: tuple[int, ...]
    note: str = ""


@dataclass(frozen=True)
class Axis:
    """The meaning of each position of one side.

    Attributes:
        kind: What the positions are.
        labels: One short text for each position.
        spans: Where each position begins and ends: characters of `text` for tokens, seconds for
            audio and video; empty for bare positions. Spans may have length 0 (special tokens).
        text: For tokens, the text that the spans point into.
        frames: For video, the first source frame of each position and the one after its last.
    """

    kind: Kind
    labels: tuple[str, ...]
    spans: tuple[tuple[float, float], ...] = ()
    text: str = ""
    frames: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        """Refuse spans or frames that are not one for each label."""
        for name, entries in (("spans", self.spans), ("frames", self.frames)):
            if entries and len(entries) != len(self.labels):
                raise ShapeError(
                    f"{name} must have one entry for each of the {len(self.labels)} labels; "
                    f"got {len(entries)}."
                )

    @classmethod
    def of_positions(cls, size: int) -> "Axis":
        """Return an axis of `size` bare positions, labelled 0, 1, 2, …

        >>> Axis.of_positions(3).labels
        ('0', '1', '2')
        """
        return cls("position", tuple(str(i) for i in range(size)))

    @classmethod
    def of_tokens(
        cls, text: str, labels: Iterable[str], offsets: Iterable[tuple[int, int]]
    ) -> "Axis":
        """Return an axis of tokens; `offsets` are their first and one-past-last characters.

        >>> Axis.of_tokens("hi you", ["hi", "you"], [(0, 2), (3, 6)]).describe(1)
        'you'
        """
        spans = tuple((float(start), float(end)) for start, end in offsets)
        return cls("token", tuple(labels), spans, text)

    @classmethod
    def of_seconds(cls, spans: Iterable[tuple[float, float]]) -> "Axis":
        """Return an axis of stretches of sound, each from its start to its end in seconds.

        >>> Axis.of_seconds([(0.0, 0.5), (0.5, 1.0)]).labels
        ('0.00s', '0.50s')
        """
        kept = tuple(spans)
        return cls("audio", tuple(f"{start:.2f}s" for start, _ in kept), kept)

    @classmethod
    def of_frames(
        cls, spans: Iterable[tuple[float, float]], frames: Iterable[tuple[int, int]]
    ) -> "Axis":
        """Return an axis of film segments, with their seconds and their source frames.

        >>> Axis.of_frames([(0.0, 0.04)], [(0, 1)]).kind
        'video'
        """
        kept = tuple(spans)
        labels = tuple(f"{start:.2f}s" for start, _ in kept)
        return cls("video", labels, kept, frames=tuple(frames))

    def __len__(self) -> int:
        """Return the number of positions."""
        return len(self.labels)

    @property
    def unit(self) -> str:
        """What the spans count: ``"character"``, ``"second"`` or, without spans, ``"position"``."""
        return {"token": "character", "audio": "second", "video": "second"}.get(
            self.kind, "position"
        )

    def take(self, positions: Items[int]) -> "Axis":
        """Return the axis of these positions only, in this order.

        >>> Axis.of_positions(5).take([4, 0]).labels
        ('4', '0')
        """
        return Axis(
            self.kind,
            tuple(self.labels[i] for i in positions),
            tuple(self.spans[i] for i in positions) if self.spans else (),
            self.text,
            tuple(self.frames[i] for i in positions) if self.frames else (),
        )

    def describe(self, position: int) -> str:
        """Return a short text for one position: the token, or its stretch of time.

        >>> Axis.of_seconds([(0.0, 0.5)]).describe(0)
        '0.00–0.50 s'
        """
        if self.kind in ("audio", "video"):
            start, end = self.spans[position]
            return f"{start:.2f}–{end:.2f} s"
        return self.labels[position]

    def locate(self, question: str) -> Location:
        """Return the positions that `question` means.

        ``@7`` is position 7, counted from 0. On sound and film, ``12.5s`` or ``1:02.5`` is the
        position that holds this time, and on film ``f250`` the one that holds this source frame.
        On text, anything else is a piece of it: ``他`` finds its first occurrence and ``他#2`` its
        second; a piece inside a longer token finds that token, and the note says so.

        Raises:
            InputError: if nothing is meant by it, or what is meant lies outside.

        Example:
            >>> axis = Axis.of_tokens("他说他", ["他说", "他"], [(0, 2), (2, 3)])
            >>> axis.locate("他#2").positions
            (1,)
            >>> axis.locate("他#1").note
            '“他” lies inside the token “他说”'
        """
        if match := re.fullmatch(r"@(\d+)", question):
            return Location((self._inside(int(match[1])),))
        if self.kind in ("audio", "video"):
            return self._locate_moment(question)
        if self.kind == "token":
            return self._locate_piece(question)
        raise InputError(f"query must be a position such as @7; got “{question}”.")

    def _inside(self, position: int) -> int:
        if position >= len(self):
            raise InputError(
                f"query must be a position from @0 to @{len(self) - 1}; got @{position}."
            )
        return position

    def _locate_moment(self, question: str) -> Location:
        if self.kind == "video" and (match := re.fullmatch(r"f(\d+)", question)):
            return self._first_holding(float(match[1]), self.frames, "frame f{:.0f} to f{:.0f}")
        seconds = _parse_seconds(question)
        if seconds is None:
            forms = "12.5s, 1:02.5 or @7" + (" or f250" if self.kind == "video" else "")
            raise InputError(f"query must be a moment such as {forms}; got “{question}”.")
        return self._first_holding(seconds, self.spans, "time from {:.2f}s to {:.2f}s")

    def _first_holding(
        self, place: float, spans: Items[tuple[float, float]] | Items[tuple[int, int]], wanted: str
    ) -> Location:
        for position, (start, end) in enumerate(spans):
            if start <= place < end:
                return Location((position,))
        first, last = spans[0][0], max(end for _, end in spans)
        if spans is self.frames:
            last -= 1
        if not first <= place <= last:
            raise InputError(f"query must be a {wanted.format(first, last)}; got {place:g}.")
        nearest = min(range(len(spans)), key=lambda i: abs(spans[i][0] - place))
        note = "" if place == last else f"no position holds {place:g}; the nearest is shown"
        return Location((nearest,), note)

    def _locate_piece(self, question: str) -> Location:
        match = re.fullmatch(r"(.+)#(\d+)", question, re.DOTALL)
        piece, number = (match[1], int(match[2])) if match else (question, 1)
        starts = [m.start() for m in re.finditer(re.escape(piece), self.text)] if piece else []
        if not starts:
            raise InputError(
                f"query must be a piece of the text; got “{piece}”, which is not in it."
            )
        if not 1 <= number <= len(starts):
            raise InputError(f"query must be #1 to #{len(starts)} of “{piece}”; got #{number}.")
        start = starts[number - 1]
        end = start + len(piece)
        held = tuple(i for i, (s, e) in enumerate(self.spans) if s < end and start < e)
        if not held:
            raise InputError(f"query must be a piece that some token holds; got “{piece}”.")
        notes = []
        if self.spans[held[0]][0] < start or self.spans[held[-1]][1] > end:
            tokens = "”, “".join(self.labels[i] for i in held)
            notes.append(f"“{piece}” lies inside the token “{tokens}”")
        if len(starts) > 1 and match is None:
            notes.append(f"the first of {len(starts)}; “{piece}#2” is the next")
        return Location(held, "; ".join(notes))


def _parse_seconds(question: str) -> float | None:
    """Return the seconds that ``12.5s``, ``12.5`` or ``[hours:]minutes:seconds`` means."""
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)s?", question):
        return float(match[1])
    if match := re.fullmatch(r"(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", question):
        hours, minutes, seconds = match.groups(default="0")
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    return None


@dataclass(frozen=True)
class Sequence:
    """Values with their meaning: one row of `values` for each position of `axis`."""

    values: Float[Tensor, "positions features"]
    axis: Axis

    def __post_init__(self) -> None:
        """Refuse values that are not one row for each position."""
        if self.values.ndim != 2 or len(self.values) != len(self.axis):
            raise ShapeError(
                f"values must be one row for each of {len(self.axis)} positions; "
                f"got {tuple(self.values.shape)}."
            )
