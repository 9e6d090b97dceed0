"""Files: the checks that every kind of input shares, before any decoder sees it."""

import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from heedmap.errors import InputError, MissingExtraError


def open_checked(path: Path) -> BinaryIO:
    """Return the file, opened for reading, once it is known to be one that holds something.

    Decoders are given this rather than the name, so that an ending such as ``.raw`` or a name such
    as ``concat:a`` cannot change what they do.

    Raises:
        InputError: if it is missing, a directory, a device, empty, or not to be read.
    """
    try:
        if path.is_dir():
            raise InputError(f"input must be a file; got the directory {path}.")
        if not path.exists():
            raise InputError(f"input must be a file that exists; got {path}.")
        if not path.is_file():
            raise InputError(f"input must be an ordinary file; got {path}, a device or pipe.")
        number = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        # Without a buffer, so that a decoder that is given the number begins where `seek` says.
        file = os.fdopen(number, "rb", buffering=0)
    except OSError as error:
        raise InputError(
            f"input must be a file that can be read; got {path} ({error.strerror})."
        ) from None
    if os.fstat(file.fileno()).st_size == 0:
        file.close()
        raise InputError(f"input must be a file that holds something; got {path}, which is empty.")
    return file


def read_all(path: Path) -> bytes:
    """Return all bytes of a file, once it is known to be one that holds something."""
    with open_checked(path) as file:
        return file.read()


def require(module: str) -> ModuleType:
    """Return an optional module, or raise the error that names the extra which brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise MissingExtraError(module.replace("_", "-"), "media") from None


def open_container(file: BinaryIO) -> Any:
    """Return a file as a PyAV container, which may reach no other file and no network.

    Raises:
        av.FFmpegError: if it is no container that FFmpeg knows.
    """
    file.seek(0)
    return require("av").open(
        file, options={"protocol_whitelist": "none"}, metadata_errors="replace"
    )
