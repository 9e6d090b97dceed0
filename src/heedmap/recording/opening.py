"""A recording is opened without its tensors; those of a layer are read when it is asked for."""

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedmap.axes import Axis
from heedmap.errors import InputError
from heedmap.layers import Layer
from heedmap.recording import files
from heedmap.recording.manifest import Entry, Manifest
from heedmap.seen import Seen


class Recording(Seen):
    """What was seen of a model, as a folder has it.

    Attributes:
        axis: What the positions are, if that was said when it was saved.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Know the manifest; not for users."""
        layers = [RecordedLayer.of(folder, entry) for entry in manifest.entries]
        super().__init__(lambda: layers, manifest.missed, manifest.model)
        self.axis: Axis | None = manifest.axis


class RecordedLayer(Layer):
    """A layer whose file is read, and compared with its hash, when its weights are asked for."""

    _folder: Path
    _entry: Entry
    _opened: list[tuple[int, ...] | None] | None

    @classmethod
    def of(cls, folder: Path, entry: Entry) -> "RecordedLayer":
        """Return the layer of an entry."""
        made = object.__new__(cls)
        # The rest of what a layer knows stays open until it is asked for.
        vars(made).update(entry.about, _folder=folder, _entry=entry, _opened=None)
        return made

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the map, for which nothing is read."""
        weights, _ = self._entry.assemble(self._entry.hollow())
        return tuple(weights.shape) if isinstance(weights, Tensor) else None

    @cached_property
    def weights(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The map, or what was kept instead."""
        return self._parts[0]

    @cached_property
    def value_norms(self) -> Tensor | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The norm of each value."""
        return self._parts[1]

    def require_unchanged(self) -> None:
        """Refuse to go on if the file is not the one any more whose tensors are in use.

        They are mapped, so what is written into the file stands in the map, and reading what was
        cut off ends the process. What is done to the file between this look at it and the reading
        after it goes unnoticed.

        Raises:
            InputError: if the file was written into, replaced or removed.
        """
        if self._opened is None:
            return
        for file, before, now in zip(self._entry.files, self._opened, self._marks(), strict=True):
            if before != now:
                raise InputError(
                    f"the recording must stay as it was opened; got {file.name} in "
                    f"{self._folder}, which was changed since. Open the recording again."
                )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy keeps: its tensors, once they were read, stand on no file."""
        return {**vars(self), "_opened": None}

    def _marks(self) -> list[tuple[int, ...] | None]:
        """Return of each file what changes when it is written or replaced; None if it is gone."""
        return [_mark(self._folder / file.name) for file in self._entry.files]

    @cached_property
    def _parts(self) -> tuple[Any, Tensor | None]:
        # Before it is read, so that what happens meanwhile is noticed later.
        vars(self)["_opened"] = self._marks()
        with torch.inference_mode(False), torch.no_grad():
            return self._entry.assemble([file.read(self._folder) for file in self._entry.files])


def _mark(path: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def open(folder: str | Path) -> Recording:
    """Return what was seen of a model, from the folder that `heedmap.Seen.save` wrote.

    It behaves as what was saved: the same names, kinds and maps, on the CPU. The manifest and the
    sizes and headers of the files are checked now, the bytes of a layer's file when its weights or
    norms are first asked for; so ``list(seen)`` checks every byte.

    Args:
        folder: The folder.

    Returns:
        A `heedmap.Seen`, with the axis that was saved as its `axis`.

    Raises:
        InputError: if the folder is no recording, or not a whole one, or one that a newer version
            wrote. For a file that was altered, when its layer is first asked for.
        MissingExtraError: if safetensors is missing.

    Cost: nothing but the manifest is read. A layer's file is read once for its hash; in memory lies
    only what is used of it, and the system may take that back. Of a layer that several ranks wrote
    (see `heedmap.parallel`), query and key are joined in memory.

    Example:
        >>> import heedmap, tempfile, torch
        >>> model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        >>> with heedmap.watch(model) as seen:
        ...     output = model(torch.zeros(1, 3, 8))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     seen.save(f"{folder}/seen")
        ...     weights = heedmap.open(f"{folder}/seen")["self_attn"]
        ...     print(weights[0, 0, 0])
        tensor([0.3333, 0.3333, 0.3333])
    """
    files.safetensors()
    place = Path(os.path.realpath(folder))
    manifest = Manifest.read(place)
    for entry in manifest.entries:
        for file in entry.files:
            file.check(place)
    return Recording(place, manifest)
