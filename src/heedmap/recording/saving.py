"""A recording is written beside its place, and put there when it is whole."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from heedmap.axes import Axis
from heedmap.errors import ArgumentError, InputError, UnsupportedError
from heedmap.layers import Layer
from heedmap.recording import files, manifest, maps
from heedmap.recording.manifest import VALUE_NORMS, Entry, Manifest
from heedmap.recording.masks import Rule
from heedmap.recording.opening import Recording
from heedmap.seen import Seen


def save(seen: Seen, folder: str | Path, *, axis: Axis | None = None, force: bool = False) -> None:
    """Write what was seen into a folder; see `heedmap.Seen.save`."""
    if axis is not None and not isinstance(axis, Axis):
        raise ArgumentError(f"axis must be a heedmap.Axis; got {type(axis).__name__}.")
    place = check_free(folder, force=force)
    layers = seen.layers
    if not layers:
        raise ArgumentError("seen must hold a layer to be saved; got none. Run the model first.")
    if axis is None and isinstance(seen, Recording):
        axis = seen.axis
    parts = [_take_apart(layer) for layer in layers]
    with _appearing(place, force=force) as temporary:
        entries = []
        for number, (layer, (rule, tensors)) in enumerate(zip(layers, parts, strict=True)):
            name = f"{number:04}.safetensors"
            file = files.write_tensors(temporary, name, tensors) if tensors else None
            entries.append(Entry.of_layer(layer, rule, file))
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
