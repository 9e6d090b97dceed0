"""Pyramids on disk, so that a map that was opened once is there at once the next time.

A file is believed only if it is whole: its length and the hash of its content are compared.
Nothing here ever fails for the caller; what cannot be kept is made again.
"""

import hashlib
import os
import struct
import tempfile
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from heedmap.explore.heads import Head
from heedmap.explore.pyramid import Pyramid
from heedmap.explore.raw import view_of

HEADER = struct.Struct("<8sQQQQ32s")
MAGIC = b"heedmap1"
SUFFIX, PART = ".pyramid", ".pyramid.part"

MOST_BYTES = 2 << 30
"""How large the folder may become; the files that were used least lately make room."""


def cache_folder() -> Path | None:
    """Return the user's folder for pyramids, or None for a user without a home.

    ``HEEDMAP_CACHE`` names the folder that it lies in; else that is ``heedmap`` in
    ``XDG_CACHE_HOME``, or in ``~/.cache``.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        if chosen := os.environ.get("HEEDMAP_CACHE"):
            return Path(chosen).expanduser().absolute() / "explore"
        return (base if base.is_absolute() else Path.home() / ".cache") / "heedmap" / "explore"
    except RuntimeError:
        return None


def load(folder: Path | None, head: Head) -> Pyramid | None:
    """Return the pyramid of a map if it was kept, and give the map its log-normalisers."""
    path = _path(folder, head)
    if path is None or not os.path.isfile(path):
        return None
    pyramid, rows = Pyramid(head.queries, head.keys), _rows_of(head)
    try:
        with path.open("rb") as file:
            header = file.read(HEADER.size)
            places = [view_of(tensor) for tensor in (pyramid.pixels, *rows)]
            is_whole = all(file.readinto(place) == len(place) for place in places)
            is_whole = is_whole and not file.read(1) and header == _header(pyramid, rows)
        if not is_whole:
            return None
        # So that it counts as used.
        os.utime(path)
    except OSError:
        return None
    pyramid.lines = pyramid.pixels.shape[1]
    if head.normalizers is not None:
        head.normalizers.restore(*rows)
    return pyramid


def save(folder: Path | None, head: Head, pyramid: Pyramid) -> None:
    """Keep the pyramid of a map, and its log-normalisers; whole, or not at all."""
    path = _path(folder, head)
    if path is None:
        return
    rows = _rows_of(head)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, so that renaming is one step.
        handle, temporary = tempfile.mkstemp(suffix=PART, dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_header(pyramid, rows))
                for tensor in (pyramid.pixels, *rows):
                    file.write(view_of(tensor))
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _make_room(path.parent)


def _path(folder: Path | None, head: Head) -> Path | None:
    if folder is None or head.fingerprint is None:
        return None
    return folder / (head.fingerprint + SUFFIX)


def _rows_of(head: Head) -> tuple[Tensor, ...]:
    """Return what is kept of each row: its log-normaliser, where it has one."""
    return () if head.normalizers is None else head.normalizers.kept()


def _header(pyramid: Pyramid, rows: tuple[Tensor, ...]) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    for tensor in (pyramid.pixels, *rows):
        digest.update(view_of(tensor))
    sizes = pyramid.queries, pyramid.keys, pyramid.side, len(rows)
    return HEADER.pack(MAGIC, *sizes, digest.digest())


def _make_room(folder: Path) -> None:
    # Nobody's files but ours, whatever folder this is; those of a process that was killed, too.
    ours = (path for suffix in (SUFFIX, PART) for path in folder.glob("*" + suffix))
    files = [(path.stat(), path) for path in ours]
    files.sort(key=lambda found: found[0].st_mtime, reverse=True)
    total = 0
    for found, path in files:
        total += found.st_size
        if total > MOST_BYTES:
            path.unlink(missing_ok=True)
