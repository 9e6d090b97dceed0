"""What a source is: text, sound or film, by what it holds and not by what it is called."""

import os
from pathlib import Path
from typing import BinaryIO

from heedmap.errors import InputError
from heedmap.media.files import open_checked, open_container, require
from heedmap.media.film import Film, find_picture_stream, is_still_picture
from heedmap.media.sound import Sound
from heedmap.media.text import Text, find_fault

_PROBED_BYTES = 1 << 16

_FILE_ENDINGS = (
    *(".txt", ".text", ".md", ".csv", ".tsv", ".json", ".xml", ".htm", ".html", ".srt", ".vtt"),
    *(".wav", ".mp3", ".flac", ".ogg", ".oga", ".opus", ".m4a", ".aac", ".aif", ".aiff", ".wma"),
    *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ogv", ".wmv", ".mpg", ".mpeg", ".gif"),
    *(".pdf", ".docx", ".jpg", ".jpeg", ".png"),
)

_BEGINNINGS = (
    (0, b"RIFF", "WAV or AVI"),
    (0, b"fLaC", "FLAC"),
    (0, b"OggS", "Ogg"),
    (0, b"ID3", "MP3"),
    (0, b"FORM", "AIFF"),
    (4, b"ftyp", "MP4"),
    (0, b"\x1aE\xdf\xa3", "Matroska or WebM"),
)


def open_media(
    source: str | Path, *, sample_rate_hz: int = 16_000, channel: int | None = None
) -> Text | Sound | Film:
    """Return what `source` holds: a `Text`, a `Sound` or a `Film`.

    A path, and a string that names something that exists (also a link that leads nowhere), is
    opened as a file. What is
    in it decides: bytes that are UTF-8, or UTF-16 with its mark, are text; what shows moving
    pictures is a film; what sounds is a sound, also with a cover picture. Any other string is the
    text itself.

    Args:
        source: A path, or words.
        sample_rate_hz: For a sound, the rate to resample to.
        channel: For a sound, the channel to take, from 0; the mean of all without it.

    Raises:
        InputError: if a path is missing, a directory, empty or not to be read, if a string looks
            like the path of a file that does not exist, and if the content is none of the three.
        MissingExtraError: if a package that decodes it is not installed.

    Cost: for a text, its reading; for a sound, its decoding; for a film, the first frame.

    Example:
        >>> open_media("to be or not to be").text
        'to be or not to be'
    """
    if isinstance(source, str) and not os.path.lexists(source):
        if _looks_like_path(source):
            raise InputError(
                f"input must be a file that exists, or words; got “{source}”, and there is no "
                "such file. To look at the words themselves, pass them with --text (in Python, "
                "with Text.of)."
            )
        return Text.of(source)
    path = Path(source)
    with open_checked(path) as file:
        head = file.read(_PROBED_BYTES + 1)
        fault = find_fault(head[:_PROBED_BYTES], whole=len(head) <= _PROBED_BYTES)
        kind = _media_kind(file, path, head, fault) if fault else Text
    if kind is Sound:
        return Sound.of_file(path, sample_rate_hz=sample_rate_hz, channel=channel)
    return kind.of_file(path)


def _looks_like_path(source: str) -> bool:
    """Return whether someone who wrote this meant a file and not words."""
    if "\n" in source:
        return False
    if source.lower().endswith(_FILE_ENDINGS):
        return True
    separators = {"/", os.sep}
    begins = source.startswith(("/", "./", "../", "~/"))
    return begins or (not any(map(str.isspace, source)) and any(s in source for s in separators))


def _media_kind(file: BinaryIO, path: Path, head: bytes, fault: str) -> type[Sound] | type[Film]:
    """Return whether a file that is no text, because of `fault`, is a sound or a film."""
    if _opens_as_sound(file):
        return Sound
    try:
        container = open_container(file)
    except require("av").FFmpegError as error:
        raise _nothing_of_the_three(path, head, fault, error.strerror) from None
    with container:
        if is_still_picture(container):
            raise InputError(f"input must be text, a sound or a film; got {path}, a still picture.")
        if find_picture_stream(container) is not None:
            return Film
        if container.streams.audio:
            return Sound
    raise InputError(
        f"input must be text, a sound or a film; got {path}, which neither sounds nor shows "
        "anything."
    )


def _opens_as_sound(file: BinaryIO) -> bool:
    soundfile = require("soundfile")
    file.seek(0)
    try:
        with soundfile.SoundFile(file.fileno(), closefd=False):
            return True
    except soundfile.LibsndfileError:
        return False


def _nothing_of_the_three(path: Path, head: bytes, fault: str, reason: str) -> InputError:
    for offset, mark, name in _BEGINNINGS:
        if head.startswith(mark, offset):
            return InputError(
                f"input must be a whole file; got {path}, which begins as {name} and cannot be "
                f"decoded (FFmpeg: {reason}). It may be cut short or damaged."
            )
    return InputError(
        f"input must be text in UTF-8 or UTF-16, a sound or a film; got {path}, which no decoder "
        f"knows, and where {fault}. If it is text, save it as UTF-8."
    )
