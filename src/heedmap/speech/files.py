"""Small text files of lines: read line by line within bounds, written whole or not at all."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from heedmap.errors import InputError
from heedmap.plot.labels import in_line

MOST_CHARACTERS = 64 << 20
"""About a million turns, or a thousand hours of talk: a larger file is something else."""

MOST_LINE_CHARACTERS = 10_000
SHOWN_CHARACTERS = 60
NO_TEXT = re.compile(r"[\0\udc80-\udcff]")


def lines_of(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text in UTF-8, numbered from 1, without their ends and outer blanks.

    Empty lines, and comments, which begin with ``;;``, are left out.

    Raises:
        InputError: for a file that cannot be read, is too large, or is no text in UTF-8.
    """
    try:
        # What is no UTF-8 comes as surrogates, so that the line can be named.
        with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
            characters = 0
            lines = iter(lambda: file.readline(MOST_LINE_CHARACTERS + 1), "")
            for number, line in enumerate(lines, start=1):
                characters += len(line)
                if characters > MOST_CHARACTERS:
                    raise InputError(
                        f"path must be a file of at most {MOST_CHARACTERS >> 20} MiB; got {path}, "
                        "a larger one. Cut it by recordings."
                    )
                if len(line) > MOST_LINE_CHARACTERS or NO_TEXT.search(line):
                    raise InputError(
                        f"{place_of(path, number)} must be a line of text in UTF-8; got something "
                        "else. Is it another kind of file, or in another encoding?"
                    )
                text = line.strip(" \t\n")
                if text and not text.startswith(";;"):
                    yield number, text
    except OSError as error:
        raise InputError(
            f"path must be a text file that can be read; got {path} ({error.strerror})."
        ) from error


def place_of(path: str | os.PathLike[str], number: int) -> str:
    """Return how errors name a line.

    >>> place_of("talk.rttm", 3)
    'line 3 of talk.rttm'
    """
    return f"line {number} of {os.fspath(path)}"


def shown(text: str) -> str:
    """Return the beginning of a text, fit for a line of an error.

    >>> shown("two\\nlines"), len(shown("x" * 100))
    ('two↵lines', 60)
    """
    if len(text) > SHOWN_CHARACTERS:
        text = text[: SHOWN_CHARACTERS - 1] + "…"
    return in_line(text)


def write_at_once(path: str | os.PathLike[str], text: str) -> Path:
    """Return the path of the file that now holds the text, in UTF-8, over what was there before.

    It is written beside its place and then moved there, so that it appears whole or not at all.

    Raises:
        InputError: if it cannot be written there.
    """
    place = Path(path)
    if place.exists() and not place.is_file() and not place.is_dir():
        # What is moved to the place of a device would take that from everybody.
        raise InputError(f"path must be no pipe and no device; got {path}. Name a file.")
    temporary = place.with_name(f".heedmap-{uuid4().hex}.part")
    try:
        # A file's name may hold what is no UTF-8.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        os.replace(temporary, place)
    except OSError as error:
        raise InputError(
            f"path must be a place where a file can be written; got {path} ({error.strerror})."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return place
