"""Where a picture is drawn, and how it reaches a file."""

from __future__ import annotations

import errno
import importlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from heedmap.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 150


def require_matplotlib() -> None:
    """Refuse to go on without matplotlib.

    Raises:
        MissingExtraError: if matplotlib is not installed.
    """
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot") from error


def new_axes(width_inches: float, height_inches: float, dots_per_inch: int = DOTS_PER_INCH) -> Axes:
    """Return axes on a figure of their own, which no global list of pyplot keeps alive."""
    from matplotlib.figure import Figure

    # The plain constrained layout cuts labels off beside axes of fixed aspect.
    figure = Figure((width_inches, height_inches), dpi=dots_per_inch, layout="compressed")
    return figure.add_subplot()


def width_points(ax: Axes) -> float:
    """Return the width of the axes in points, as far as it is known before they are laid out."""
    return ax.bbox.width * _points_of_a_dot(ax)


def height_points(ax: Axes) -> float:
    """Return the height of the axes in points, as far as it is known before they are laid out."""
    return ax.bbox.height * _points_of_a_dot(ax)


def _points_of_a_dot(ax: Axes) -> float:
    return 72 / ax.get_figure(root=True).dpi  # pyright: ignore[reportOptionalMemberAccess]


def save_figure(picture: Artist, path: str | os.PathLike[str]) -> Path:
    """Return the path of the file that now holds the picture.

    The file appears whole or not at all: it is written beside its place and then moved there, over
    what was there before.

    Args:
        picture: What a ``plot_*`` function gave back, or a figure.
        path: Where to; the ending says the format: ``.png``, ``.svg`` or ``.pdf``.

    Raises:
        InputError: if the ending means no format, or the file cannot be written there.

    Example:
        >>> import tempfile, torch
        >>> from heedmap.plot import plot_heatmap
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_figure(plot_heatmap(torch.eye(3)), folder + "/eye.png").name
        'eye.png'
    """
    place = Path(path)
    file_format = place.suffix.lower().removeprefix(".")
    if file_format not in FORMATS:
        raise InputError(f"path must end in .png, .svg or .pdf; got “{place.name}”.")
    require_matplotlib()
    figure = picture.get_figure(root=True)
    if figure is None:
        raise InputError("picture must belong to a figure; got one that was removed from it.")
    try:
        _write(figure, place, file_format)
    except OSError as error:
        raise InputError(
            f"path must be a file that can be written; got “{place}” ({error.strerror})."
        ) from error
    return place


def _write(figure: Figure, place: Path, file_format: str) -> None:
    # What is moved to the place of a device would take that from everybody.
    if place.exists() and not place.is_file():
        raise FileExistsError(errno.EEXIST, "it is no file")
    # Dates would make two pictures of the same map differ.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file_format)
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.stem}-", suffix=place.suffix)
    os.close(handle)
    try:
        figure.savefig(
            name,
            format=file_format,
            dpi=figure.dpi,
            bbox_inches="tight",
            pad_inches=0.08,
            metadata=undated,
        )
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
