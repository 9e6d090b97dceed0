"""A recording is written beside its place, and put there when it is whole."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from heedmap.axes import Axis
from heedmap.errors import ArgumentError, HeedmapError, InputError, UnsupportedError
from heedmap.layers import Layer
from heedmap.recording import files, manifest, maps, shards
from heedmap.recording.files import TensorFile
from heedmap.recording.manifest import VALUE_NORMS, Entry, Manifest
from heedmap.recording.masks import Rule
from heedmap.recording.opening import Recording
from heedmap.seen import Seen

if TYPE_CHECKING:
    from heedmap.parallel.members import Members


Parts = list[tuple[Rule | None, dict[str, Tensor]]]
"""What is written of each layer."""


def save(seen: Seen, folder: str | Path, *, axis: Axis | None = None, force: bool = False) -> None:
    """Write what was seen into a folder; see `heedmap.Seen.save`."""
    layers = seen.layers
    members = shards.members_of(layers)
    if members is not None:
        _save_together(members, seen, layers, folder, axis, force)
        return
    place = _checked(layers, folder, axis, force)
    parts = [_take_apart(layer) for layer in layers]
    with _appearing(place, force=force) as temporary:
        written = _write(temporary, parts, "")
        _finish(temporary, seen, layers, parts, [written], axis)


def _save_together(
    members: "Members",
    seen: Seen,
    layers: list[Layer],
    folder: str | Path,
    axis: Axis | None,
    force: bool,
) -> None:
    """Let each rank write its part, and the first one, which has all other layers, the manifest."""
    place, parts, written, error = None, [], [], None
    try:
        place = _checked(layers, folder, axis, force)
        parts = [
            (None, {})
            if members.rank and shards.shards_of(layer.weights) is None
            else _take_apart(layer)
            for layer in layers
        ]
    except HeedmapError as refused:
        error = refused
    members.agree(f"to save {len(layers)} layers", error=error)
    assert place is not None
    with ExitStack() as stack:
        made = None
        try:
            if not members.rank:
                made = stack.enter_context(_appearing(place, force=force))
        except HeedmapError as refused:
            error = refused
        temporary = members.agree("where to save", Path() if made is None else made, error)[0]
        try:
            if not temporary.is_dir():
                raise InputError(
                    f"folder must be on a disk that all ranks see; got {folder}, where rank "
                    f"{members.rank} does not see what rank 0 wrote. Name another."
                )
            with _told_as_unwritable(place):
                written = _write(temporary, parts, f"-{members.rank:04}")
        except HeedmapError as refused:
            error = refused
        found = members.agree("to have saved", written, error)
        try:
            if made is not None:
                with _told_as_unwritable(place):
                    _finish(made, seen, layers, parts, found, axis)
                stack.close()
        except HeedmapError as refused:
            error = refused
        members.agree("to end saving", error=error)


def _checked(layers: list[Layer], folder: str | Path, axis: Axis | None, force: bool) -> Path:
    """Return where to write, once it is known that there is something to be written there."""
    if axis is not None and not isinstance(axis, Axis):
        raise ArgumentError(f"axis must be a heedmap.Axis; got {type(axis).__name__}.")
    place = check_free(folder, force=force)
    if not layers:
        raise ArgumentError("seen must hold a layer to be saved; got none. Run the model first.")
    return place


def _write(temporary: Path, parts: Parts, ending: str) -> list[TensorFile | None]:
    """Write the tensors of each layer into a file of its number, and return what was written."""
    return [
        files.write_tensors(temporary, f"{number:04}{ending}.safetensors", tensors)
        if tensors
        else None
        for number, (_, tensors) in enumerate(parts)
    ]


def _finish(
    temporary: Path,
    seen: Seen,
    layers: list[Layer],
    parts: Parts,
    written: list[list[TensorFile | None]],
    axis: Axis | None,
) -> None:
    """Write the manifest of what each rank has written."""
    if axis is None and isinstance(seen, Recording):
        axis = seen.axis
    entries = [
        Entry.of_layer(layer, rule, tuple(file for file in found if file is not None))
        for layer, (rule, _), *found in zip(layers, parts, *written, strict=True)
    ]
    Manifest(entries, seen.model, seen.missed, axis).write(temporary)


def check_free(folder: str | Path, *, force: bool) -> Path:
    """Return the real place of a folder that can take a recording.

    Raises:
        InputError: if something is there already, unless it is a recording and `force` is given.
        MissingExtraError: if safetensors is missing.
    """
    files.safetensors()
    place = Path(os.path.realpath(folder))
    if not os.path.lexists(place):
        return place
    if not place.is_dir():
        raise InputError(f"folder must be a folder; got {folder}, a file. Name another.")
    if not force:
        raise InputError(
            f"folder must not exist yet; got {folder}. Name another, or give force (--force) to "
            "replace a recording."
        )
    try:
        names = sorted(os.listdir(place))
    except OSError as error:
        raise _unwritable(place, error) from error
    others = [name for name in names if name != manifest.NAME and not files.NAME.fullmatch(name)]
    if others:
        raise InputError(
            f"folder must hold a recording and nothing else to be replaced; got {folder}, which "
            f"holds {others[0]}. Name another."
        )
    return place


def _take_apart(layer: Layer) -> tuple[Rule | None, dict[str, Tensor]]:
    """Return what is written of a layer; nothing is copied yet.

    Raises:
        UnsupportedError: naming the layer, if it cannot be saved.
    """
    try:
        rule, tensors = (None, {}) if layer.weights is None else maps.take_apart(layer.weights)
        if layer.value_norms is not None:
            tensors[VALUE_NORMS] = layer.value_norms
        for tensor in tensors.values():
            files.name_of(tensor.dtype)
    except UnsupportedError as error:
        number = f", {layer.number}" if layer.number else ""
        raise UnsupportedError(
            f"seen must hold layers that can be saved; got “{layer.name}{number}”: "
            f"{str(error).rstrip('.')}. Save the others: seen.matching(pattern).save(folder)."
        ) from error
    return rule, {name: tensor.detach() for name, tensor in tensors.items()}


@contextmanager
def _appearing(place: Path, *, force: bool) -> Iterator[Path]:
    """Yield an empty folder that is at `place` once the block has ended well.

    When the block raises, whatever it raises, nothing is there that was not there before.
    """
    temporary = place.parent / f".heedmap-{secrets.token_hex(8)}"
    old = temporary.with_name(f"{temporary.name}-old")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        _sync(temporary)
        # Something else may have come there since.
        check_free(place, force=force)
        if place.exists():
            os.rename(place, old)
        os.rename(temporary, place)
        _sync(place.parent)
    except OSError as error:
        raise _unwritable(place, error) from error
    finally:
        if old.exists() and not place.exists():
            os.rename(old, place)
        for rest in (temporary, old):
            shutil.rmtree(rest, ignore_errors=True)


@contextmanager
def _told_as_unwritable(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unwritable(place, error) from error


def _unwritable(place: Path, error: OSError) -> InputError:
    return InputError(
        f"folder must be one that can be written; got {place} ({error.strerror}). Name another, or "
        "make room."
    )


def _sync(folder: Path) -> None:
    """Write a folder's list of names down to the disk, where folders can be opened for that."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
