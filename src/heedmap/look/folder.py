"""The output folder: it holds everything or, if something goes wrong, nothing new."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heedmap.errors import InputError

SUMMARY = "summary.json"
OURS = re.compile(r"summary\.json|(atlas|arcs|timeline|layer\d+-head\d+)\.png")
MOST_LETTERS = 40


def folder_name(words: str) -> str:
    """Return a name for a folder that says what was looked at, safe on every file system.

    >>> folder_name("To be, or not?")
    'To-be-or-not'
    """
    kept = re.sub(r"[^\w.]+", "-", words[: 2 * MOST_LETTERS]).strip("-.")[:MOST_LETTERS]
    return kept.strip("-.") or "text"


def check_free(folder: Path, *, force: bool, ours: re.Pattern[str] = OURS) -> None:
    """Refuse a folder that cannot take the results, whose files have names like `ours`.

    Raises:
        InputError: if it is no folder, or holds results and `force` is not given.
    """
    try:
        if folder.is_dir():
            found = sorted(name for name in os.listdir(folder) if ours.fullmatch(name))
        elif os.path.lexists(folder):
            raise InputError(
                f"output must be a folder; got {folder}, a file. Name another with -o."
            )
        else:
            found = []
        _check_writable(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    if found and not force:
        raise InputError(
            f"output must be a folder without earlier results; got {folder}, which holds "
            f"{found[0]}. Add --force to replace them, or name another with -o."
        )


@contextmanager
def filled_at_once(
    folder: Path, *, force: bool, ours: re.Pattern[str] = OURS, summary: str = SUMMARY
) -> Iterator[Path]:
    """Yield an empty folder whose files are in `folder` once the block has ended well.

    A new folder appears whole, by one renaming. In one that is there already, our files are
    replaced one by one, the summary last, and earlier ones that are not among the new ones are
    removed; other files are left alone. When the block raises, nothing changes.

    Args:
        folder: Where the files go.
        force: Whether to replace the results that lie there.
        ours: The names that our files have.
        summary: The name of the one that comes last.

    Raises:
        InputError: if it cannot be written, or by now holds results and `force` is not given.
    """
    made: list[Path] = []
    done = False
    try:
        try:
            for parent in [*reversed(folder.absolute().parents)]:
                if not parent.exists():
                    parent.mkdir()
                    made.append(parent)
            temporary = Path(tempfile.mkdtemp(dir=folder.absolute().parent, prefix=".heedmap-"))
            made.append(temporary)
            # mkdtemp lets nobody else in; an ordinary folder is wanted in the end.
            temporary.chmod(0o777 & ~_umask())
        except OSError as error:
            raise _unwritable(folder, error) from error
        try:
            yield temporary
            if not force:
                # Another look may have come first since this one was allowed.
                check_free(folder, force=False, ours=ours)
            _move(temporary, folder, ours, summary)
        except OSError as error:
            raise _unwritable(folder, error) from error
        done = True
    finally:
        for path in reversed(made):
            if path.name.startswith(".heedmap-"):
                shutil.rmtree(path, ignore_errors=True)
            elif not done:
                _remove_if_empty(path)


def write_summary(folder: Path, summary: dict[str, object]) -> None:
    """Write the summary as JSON."""
    # A file may have a name that is no UTF-8; JSON has escapes for what is not.
    text = as_json(summary)
    (folder / SUMMARY).write_text(text, encoding="utf-8", errors="backslashreplace")


def as_json(summary: dict[str, object]) -> str:
    """Return the summary as JSON, with a line end."""
    return json.dumps(summary, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _move(temporary: Path, folder: Path, ours: re.Pattern[str], summary: str) -> None:
    if not folder.exists():
        os.rename(temporary, folder)
        return
    names = sorted(os.listdir(temporary), key=lambda name: name == summary)
    for name in names:
        os.replace(temporary / name, folder / name)
    for name in os.listdir(folder):
        if ours.fullmatch(name) and name not in names:
            (folder / name).unlink()


def _check_writable(folder: Path) -> None:
    nearest = folder.absolute()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        raise NotADirectoryError(20, f"{nearest} is a file")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(13, "Permission denied")


def _remove_if_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        return


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"output must be a folder that can be written; got {folder} ({error.strerror}). "
        "Name another with -o, or make room."
    )


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
