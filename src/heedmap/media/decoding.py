"""Decoding of sound: blocks of samples, by soundfile where it can and by PyAV where it cannot."""

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from jaxtyping import Float

from heedmap.media.files import open_container, require

_BLOCK_FRAMES = 1 << 16
_GAP_SECONDS = 0.05
_EXACT_DURATIONS = ("mov,mp4,m4a,3gp,3g2,mj2", "flac")
"""Containers whose durations are stated; in others they may be guessed from the bit rate."""

_MOST_PLANES = 8
"""PyAV reads beyond its memory, and may end the process, where there are more than this."""

_LENGTH_UNKNOWN = 0x7FFFF000
"""Writers that cannot go back put 0xFFFFFFFF, or nearly 2 GiB, where the size belongs."""


class Undecodable(Exception):
    """A decoder's own words for why it cannot read a file; never leaves this package."""


class Block(NamedTuple):
    """A stretch of sound as it was decoded: float32 `samples` in [-1, 1], as a numpy array."""

    sample_rate_hz: int
    samples: Float[Any, "frames channels"]


def soundfile_blocks(file: BinaryIO, notes: list[str]) -> Iterator[Block]:
    """Yield the blocks that soundfile decodes, and leave remarks on the file in `notes`.

    Raises:
        Undecodable: if soundfile does not know the format or gives up within it.
    """
    require("numpy")
    soundfile = require("soundfile")
    if remark := _wav_length_remark(file):
        notes.append(remark)
    file.seek(0)
    try:
        with soundfile.SoundFile(file.fileno(), closefd=False) as sound:
            decoded, stops = 0, []
            while len(samples := sound.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
                decoded += len(samples)
                yield Block(sound.samplerate, samples)
                if len(samples) < _BLOCK_FRAMES and decoded < sound.frames:
                    stops.append(decoded / sound.samplerate)
            if decoded < sound.frames:
                notes.append(_short_remark(sound.frames, decoded, sound.samplerate))
            elif stops:
                notes.append(f"the file is damaged at {stops[0]:.2f} s")
    except soundfile.LibsndfileError as error:
        raise Undecodable(error.error_string.removeprefix("Error : ").rstrip(".")) from None


def av_blocks(file: BinaryIO, notes: list[str]) -> Iterator[Block]:
    """Yield the blocks of the first sound track, as PyAV decodes them, and leave remarks.

    Where the track begins later than the file's other tracks, or lacks a piece, silence stands
    for what is not there, so that the seconds of sound and picture are the same.

    Raises:
        Undecodable: if there is no sound track, or nothing can be decoded.
    """
    av = require("av")
    try:
        container = open_container(file)
    except av.FFmpegError as error:
        raise Undecodable(error.strerror) from None
    with container:
        if not container.streams.audio:
            raise Undecodable("no sound track")
        stream = container.streams.audio[0]
        decoded = rate = too_wide = 0
        gap_seconds = 0.0
        reader = PacketReader(container, stream)
        for frame in reader:
            if frame.format.is_planar and frame.layout.nb_channels > _MOST_PLANES:
                too_wide += 1
                continue
            block = Block(frame.sample_rate, _samples_of(frame))
            if silent := _missing_frames(frame, container, decoded):
                gap_seconds += silent / frame.sample_rate if decoded else 0.0
                decoded += silent
                shape = (silent, block.samples.shape[1])
                yield Block(block.sample_rate_hz, require("numpy").zeros(shape, dtype="float32"))
            rate = frame.sample_rate
            decoded += len(block.samples)
            yield block
        if too_wide and not decoded:
            raise Undecodable(f"more than {_MOST_PLANES} channels")
        notes.extend(reader.remarks())
        if too_wide:
            notes.append(f"frames of more than {_MOST_PLANES} channels, left out: {too_wide}")
        if gap_seconds:
            notes.append(f"silence put where the track lacks a piece: {gap_seconds:.2f} s")
        if container.format.name in _EXACT_DURATIONS and stream.duration:
            stated = round(stream.duration * stream.time_base * rate)
            if decoded < stated - max(rate // 10, stated // 50):
                notes.append(_short_remark(stated, decoded, rate))


class PacketReader:
    """The frames of one stream of a container, in order, past packets that are damaged."""

    def __init__(self, container: Any, stream: Any) -> None:
        """Read `stream` of the open PyAV `container` from where it stands."""
        self._container = container
        self._stream = stream
        self._skipped = 0
        self._concealed = 0
        self._broken_off = ""

    def __iter__(self) -> Iterator[Any]:
        """Yield the decoded frames, and count what is damaged on the way."""
        error_class = require("av").FFmpegError
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets, None)
            except error_class as error:
                self._broken_off = error.strerror
                return
            if packet is None:
                return
            try:
                frames = packet.decode()
            except error_class:
                self._skipped += 1
                continue
            for frame in frames:
                self._concealed += bool(frame.is_corrupt)
                yield frame

    def remarks(self) -> list[str]:
        """Return what was damaged so far, one sentence for each kind."""
        remarks = []
        if self._skipped:
            remarks.append(f"damaged packets that were skipped: {self._skipped}")
        if self._concealed:
            remarks.append(f"damaged frames that were concealed: {self._concealed}")
        if self._broken_off:
            remarks.append(f"the file breaks off: {self._broken_off}")
        return remarks


def _samples_of(frame: Any) -> Float[Any, "frames channels"]:
    """Return the samples of a PyAV frame, whatever their type and layout, as float32."""
    numpy = require("numpy")
    try:
        samples = frame.to_ndarray()
    except ValueError:
        raise Undecodable(f"samples of the type {frame.format.name}") from None
    samples = samples.T if frame.format.is_planar else samples.reshape(frame.samples, -1)
    if samples.dtype == numpy.uint8:
        return (samples.astype(numpy.float32) - 128) / 128
    if samples.dtype.kind == "i":
        return samples.astype(numpy.float32) / 2.0 ** (8 * samples.itemsize - 1)
    with numpy.errstate(over="ignore"):
        return samples.astype(numpy.float32)


def _missing_frames(frame: Any, container: Any, decoded: int) -> int:
    """Return how many samples are missing before this frame, by its time, after `decoded` ones."""
    if frame.pts is None or container.start_time is None:
        return 0
    seconds = float(frame.pts * frame.time_base) - container.start_time / 1e6
    # A damaged time must not ask for hours of silence.
    if seconds > (container.duration or 0) / 1e6:
        return 0
    missing = round(seconds * frame.sample_rate) - decoded
    # Within a track, times are often rounded: only a real gap counts.
    return missing if missing > (_GAP_SECONDS * frame.sample_rate if decoded else 0) else 0


def _short_remark(stated: int, decoded: int, sample_rate_hz: int) -> str:
    return (
        f"the file is cut short or damaged: it states {stated / sample_rate_hz:.2f} s "
        f"and holds {decoded / sample_rate_hz:.2f} s"
    )


def _wav_length_remark(file: BinaryIO) -> str | None:
    """Return a remark where the length that a WAV file states for its samples is not true."""
    file.seek(0)
    head = file.read(12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        return None
    file_bytes = file.seek(0, 2)
    file.seek(12)
    while len(chunk := file.read(8)) == 8:
        stated = struct.unpack("<I", chunk[4:])[0]
        held = file_bytes - file.tell()
        if chunk[:4] != b"data":
            file.seek(stated + stated % 2, 1)
        elif stated >= _LENGTH_UNKNOWN and stated > held:
            return "the header states no true length, as streams do; all bytes there were read"
        elif stated > held:
            return f"the file is cut short: it states {stated} bytes of sound and holds {held}"
        else:
            return None
    return None
