"""Film: the frames of a video file, one after another, with their true times."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import torch
from jaxtyping import UInt8
from torch import Tensor

from heedmap.axes import Axis, Sequence
from heedmap.errors import ArgumentError, InputError
from heedmap.media.decoding import PacketReader
from heedmap.media.files import open_checked, open_container, require
from heedmap.media.film_features import normalized_histograms, picture_histogram
from heedmap.media.sound import Sound

_FEATURE_SIDE_PIXELS = 96
_FRAMES_BETWEEN_PROGRESS = 25
_CUT_SHORT_SECONDS = 0.5


@dataclass(frozen=True, eq=False)
class Frame:
    """One frame of a film, as it is shown.

    Attributes:
        number: Which frame it is, counted from 0 in the order of showing.
        start_seconds: When it appears, from the start of the film.
        end_seconds: When the next one appears.
        picture: Its pixels: rows from the top, columns from the left, red, green and blue.
    """

    number: int
    start_seconds: float
    end_seconds: float
    picture: UInt8[Tensor, "height width 3"]


@dataclass(frozen=True, eq=False)
class Film:
    """A video file that is known to show something; its frames are decoded when asked for.

    Attributes:
        path: The file.
        name: What messages and pictures call it.
        width_pixels: Width of the first frame, upright.
        height_pixels: Height of the first frame, upright.
        stated_frames: How many frames the file says it has: often right, sometimes absent (None),
            never to be relied on. `frames` gives as many as there are.
        has_sound: Whether there is a sound track.
        temperature: What to divide the scores of `sequence` by, to look at it. Over a film of six
            shots, a frame then gives four fifths of its weight to its own shot. To assign frames
            to shots, 0.1 is better.
    """

    path: Path
    name: str
    width_pixels: int
    height_pixels: int
    stated_frames: int | None
    has_sound: bool
    temperature: ClassVar[float] = 0.3
    _notes: list[str] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def of_file(cls, path: str | Path) -> "Film":
        """Return the film that a file holds, after its first frame was decoded.

        Raises:
            InputError: if the file is missing, empty, not to be read, a still picture, a sound
                (with or without a cover picture), or nothing that FFmpeg can decode.
            MissingExtraError: if av or numpy is not installed.

        Cost: decoding of one frame.
        """
        path = Path(path)
        with open_checked(path) as file, _opened(file, path) as container:
            stream = _picture_stream(container, path)
            frame = next(iter(PacketReader(container, stream)), None)
            if frame is None:
                raise InputError(f"input must be a film with frames; got {path}, which has none.")
            height, width = _upright(frame, torch.empty(frame.height, frame.width)).shape
            stated = stream.frames or None
            return cls(path, path.name, width, height, stated, bool(container.streams.audio))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the last reading of the frames found damaged, a sentence each; empty before it."""
        return tuple(self._notes)

    def frames(self, max_side_pixels: int | None = None) -> Iterator[Frame]:
        """Yield every frame in the order of showing, upright.

        Times are those of the file, also where they are not even; the start of the film is 0.
        A frame that follows damage is given as the decoder conceals it; a packet that cannot be
        decoded at all is passed over. Both are counted in `notes` once the last frame is out.

        Args:
            max_side_pixels: Scale the pictures down so that the longer side is no larger.

        Raises:
            InputError: if the file can no longer be opened.

        Cost: decoding; memory of two frames.
        """
        if max_side_pixels is not None and max_side_pixels < 1:
            raise ArgumentError(f"max_side_pixels must be at least 1; got {max_side_pixels}.")
        return self._decode(max_side_pixels)

    def sequence(
        self,
        segment_frames: int = 1,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> Sequence:
        """Return one position for each segment of frames, whose values say what it looks like.

        Recipe: each picture, scaled to 96 pixels on its longer side, is split into 3 × 3 regions;
        in each, soft histograms of luma (8 bins) and of the two chroma differences (4 bins each),
        where a pixel gives to the two nearest bins by its nearness; the mean over the frames of
        the segment; square root; minus the mean over the film; divided by their length (at least
        0.1) to unit length, or less where nothing stands out, so that the noise of a still film
        does not look like structure. 144 values. Attention over it, at `temperature`, shows
        returning shots.

        Every frame lies in exactly one position; the last segment may be shorter.

        Args:
            segment_frames: How many frames make one position.
            progress: Called now and then with the number of frames done and of those stated by
                the file (None where that is unknown or was passed).

        Raises:
            ArgumentError: if `segment_frames` is below 1.
            InputError: if the file can no longer be opened or has no frames.

        Cost: decoding, and 0.5 ms a frame; memory of 576 bytes a segment.
        """
        if segment_frames < 1:
            raise ArgumentError(f"segment_frames must be at least 1; got {segment_frames}.")
        segments = _Segments(segment_frames)
        done = 0
        for frame in self.frames(_FEATURE_SIDE_PIXELS):
            segments.add(frame)
            done += 1
            if progress and done % _FRAMES_BETWEEN_PROGRESS == 0:
                stated = self.stated_frames
                progress(done, stated if stated and stated >= done else None)
        if progress:
            progress(done, done)
        if not done:
            raise InputError(f"input must be a film with frames; got {self.path}, which has none.")
        return segments.sequence()

    def sound(self, *, sample_rate_hz: int = 16_000, channel: int | None = None) -> Sound:
        """Return the sound track, whose seconds are those of the frames (see `Sound.of_file`).

        Raises:
            InputError: if there is no sound track, or it cannot be decoded.
        """
        if not self.has_sound:
            raise InputError(f"input must have a sound track; got {self.path}, which has none.")
        return Sound.of_file(self.path, sample_rate_hz=sample_rate_hz, channel=channel)

    def _decode(self, max_side_pixels: int | None) -> Iterator[Frame]:
        self._notes.clear()
        with open_checked(self.path) as file, _opened(file, self.path) as container:
            stream = _picture_stream(container, self.path)
            draw = _Draw(stream.sample_aspect_ratio, max_side_pixels)
            clock = _Clock(container, stream)
            reader = PacketReader(container, stream)
            number, start_seconds, picture, last = 0, 0.0, None, None
            for frame in reader:
                appears_seconds = clock.appears_seconds(frame)
                if picture is not None:
                    yield Frame(number, start_seconds, appears_seconds, picture)
                    number += 1
                start_seconds, picture, last = appears_seconds, draw(frame), frame
            end_seconds = 0.0
            if picture is not None:
                end_seconds = clock.disappears_seconds(last)
                yield Frame(number, start_seconds, end_seconds, picture)
                number += 1
            self._notes.extend(reader.remarks() + clock.remarks())
            stated_seconds = _stated_seconds(container, stream)
            if stated_seconds > end_seconds + _CUT_SHORT_SECONDS:
                self._notes.append(
                    f"the file is cut short or damaged: it states {stated_seconds:.2f} s and "
                    f"ends at {end_seconds:.2f} s"
                )
            if stream.frames > number:
                self._notes.append(f"the file states {stream.frames} frames and holds {number}")


class _Clock:
    """When frames appear, in seconds from the start of the film, never running backwards."""

    def __init__(self, container: Any, stream: Any) -> None:
        rate = stream.average_rate or stream.guessed_rate
        self._usual_seconds = float(1 / rate) if rate else 0.04
        self._origin_seconds = (container.start_time or 0) / 1e6
        self._now_seconds = -self._usual_seconds
        self._wrong = 0

    def appears_seconds(self, frame: Any) -> float:
        """Return when this frame, which follows the last one asked for, appears."""
        stated = None
        if frame.pts is not None:
            stated = float(frame.pts * frame.time_base) - self._origin_seconds
        if stated is None or stated <= self._now_seconds:
            self._wrong += 1
            stated = self._now_seconds + self._usual_seconds
        self._now_seconds = stated
        return stated

    def disappears_seconds(self, frame: Any) -> float:
        """Return when the last frame ends."""
        stated = float(frame.duration * frame.time_base) if frame.duration else 0.0
        return self._now_seconds + (stated or self._usual_seconds)

    def remarks(self) -> list[str]:
        """Return what was wrong with the times."""
        if not self._wrong:
            return []
        return [f"frames without a time of their own, put at the usual rate: {self._wrong}"]


class _Draw:
    """Turns decoded frames into upright RGB pictures with square pixels, scaled if asked for."""

    def __init__(self, pixel_aspect: Fraction | None, max_side_pixels: int | None) -> None:
        require("numpy")
        self._reformatter = require("av").video.reformatter.VideoReformatter()
        self._pixel_aspect = float(pixel_aspect or 1)
        self._max_side_pixels = max_side_pixels

    def __call__(self, frame: Any) -> UInt8[Tensor, "height width 3"]:
        """Return the picture of a PyAV frame."""
        width, height = frame.width, frame.height
        if self._max_side_pixels is not None:
            shown = width * self._pixel_aspect
            scale = min(1.0, self._max_side_pixels / max(shown, height))
            width, height = max(1, round(shown * scale)), max(1, round(height * scale))
        try:
            small = self._reformatter.reformat(frame, width=width, height=height, format="rgb24")
        except require("av").FFmpegError:
            raise InputError(
                f"input must have pictures that can be shown; got {width} × {height} pixels "
                f"of the type {frame.format.name}."
            ) from None
        return _upright(frame, torch.from_numpy(small.to_ndarray())).contiguous()


class _Segments:
    """Frames on their way to positions."""

    def __init__(self, segment_frames: int) -> None:
        self._segment_frames = segment_frames
        self._histograms: list[Tensor] = []
        self._spans: list[tuple[float, float]] = []
        self._frames: list[tuple[int, int]] = []

    def add(self, frame: Frame) -> None:
        """Take the next frame."""
        histogram = picture_histogram(frame.picture)
        if frame.number % self._segment_frames == 0:
            self._histograms.append(histogram)
            self._spans.append((frame.start_seconds, frame.end_seconds))
            self._frames.append((frame.number, frame.number + 1))
            return
        first = self._frames[-1][0]
        held = frame.number - first
        self._histograms[-1] += (histogram - self._histograms[-1]) / (held + 1)
        self._spans[-1] = (self._spans[-1][0], frame.end_seconds)
        self._frames[-1] = (first, frame.number + 1)

    def sequence(self) -> Sequence:
        """Return the positions of all frames taken."""
        values = normalized_histograms(torch.stack(self._histograms))
        return Sequence(values, Axis.of_frames(self._spans, self._frames))


def _opened(file: BinaryIO, path: Path) -> Any:
    try:
        return open_container(file)
    except require("av").FFmpegError as error:
        raise InputError(
            f"input must be a film that can be decoded; got {path} (FFmpeg: {error.strerror})."
        ) from None


def _picture_stream(container: Any, path: Path) -> Any:
    """Return the first stream that shows something in time; a cover picture does not."""
    if is_still_picture(container):
        raise InputError(f"input must be a film; got {path}, a still picture.")
    stream = find_picture_stream(container)
    if stream is None:
        raise InputError(f"input must be a film; got {path}, which shows no moving pictures.")
    stream.thread_type = "AUTO"
    return stream


def find_picture_stream(container: Any) -> Any:
    """Return the first stream of moving pictures of a PyAV container, or None."""
    disposition = require("av").stream.Disposition
    still = disposition.attached_pic | disposition.timed_thumbnails
    streams = (s for s in container.streams.video if not s.disposition & still)
    return next(streams, None)


def _stated_seconds(container: Any, stream: Any) -> float:
    """Return when a Matroska file says that the track ends; 0 where nothing is said.

    Containers with an index state the number of frames instead, and it is the only number that a
    sound track of another length, or a guess of FFmpeg's, cannot make wrong.
    """
    stated = stream.metadata.get("DURATION", "")
    match = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", stated)
    if not match or not container.format.name.startswith("matroska"):
        return 0.0
    seconds = int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3])
    return seconds - (container.start_time or 0) / 1e6


def is_still_picture(container: Any) -> bool:
    """Return whether FFmpeg reads this as a file of one picture, such as PNG or JPEG."""
    return container.format.name.endswith("_pipe") or container.format.name == "image2"


def _upright(frame: Any, picture: Tensor) -> Tensor:
    """Return a picture turned and mirrored as the display matrix of its frame says.

    The matrix sends a point (x, y) to (a x + c y, b x + d y). Only its signs matter here: quarter
    turns and mirrors are applied, and any other angle is left as it is.
    """
    a, b, c, d = _display_matrix(frame)
    if a and d and not b and not c:
        across, down = a, d
    elif b and c and not a and not d:
        picture = picture.transpose(0, 1)
        across, down = c, b
    else:
        return picture
    flipped = [axis for axis, sign in ((0, down), (1, across)) if sign < 0]
    return picture.flip(flipped) if flipped else picture


def _display_matrix(frame: Any) -> tuple[int, int, int, int]:
    """Return the four turning entries of a frame's display matrix; (1, 0, 0, 1) without one."""
    kind = require("av").sidedata.sidedata.Type.DISPLAYMATRIX
    for data in frame.side_data:
        if data.type == kind:
            entries = memoryview(bytes(data)).cast("i")
            return entries[0], entries[1], entries[3], entries[4]
    return 1, 0, 0, 1
