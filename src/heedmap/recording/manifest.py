"""The manifest of a recording: what stands in it, and whether it is what was written."""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from heedmap.axes import Axis
from heedmap.axes import Kind as AxisKind
from heedmap.errors import HeedmapError, InputError
from heedmap.layers import Kind, Layer
from heedmap.recording import maps, shards
from heedmap.recording.files import TensorFile, damaged
from heedmap.recording.masks import Rule

SCHEMA = 2
"""The number of this form of recordings; those with a larger one are refused.

A recording that older versions can read, of which no layer lies in several files, has a 1."""

NAME = "manifest.json"
POSITIONS = "queries and keys are as the kernel saw them, after any rotation"
VALUE_NORMS = "value_norms"

_SCALARS = {
    "name": str,
    "kind": str,
    "number": int,
    "calls": int,
    "first_query": int,
    "door": str,
    "kept": str,
}


@dataclass(frozen=True)
class Entry:
    """What the manifest says of a layer.

    Attributes:
        about: What `heedmap.layers.Layer` knows, without its tensors.
        rule: What was kept of its weights; None for nothing.
        files: Where its tensors lie: none, one, or one for each rank that had a part of it.
    """

    about: Mapping[str, Any]
    rule: Rule | None
    files: tuple[TensorFile, ...]

    @classmethod
    def of_layer(cls, layer: Layer, rule: Rule | None, files: tuple[TensorFile, ...]) -> "Entry":
        """Return the entry of a layer."""
        about = {name: getattr(layer, name) for name in (*_SCALARS, "output_error")}
        return cls(about, rule, files)

    @property
    def schema(self) -> int:
        """The number of the form that has such entries."""
        return 1 if shards.layouts_of(self.rule) is None else 2

    def as_plain(self) -> dict[str, Any]:
        """Return it as the manifest has it."""
        error = self.about["output_error"]
        if error is not None and not math.isfinite(error):
            error = str(error)
        files = [file.as_plain() for file in self.files]
        where = {"file": files[0] if files else None} if self.schema == 1 else {"files": files}
        return {**self.about, "output_error": error, "weights": self.rule, **where}

    @classmethod
    def of_plain(cls, plain: Any) -> "Entry":
        """Return what a manifest says of a layer, of which everything is tried but no tensor read.

        Raises:
            HeedmapError, KeyError, TypeError, ValueError, AttributeError: if it makes no sense.
        """
        about = {name: plain[name] for name in _SCALARS}
        for name, kind in _SCALARS.items():
            if type(about[name]) is not kind:
                raise TypeError(f"{name} is {about[name]!r}")
        if about["kind"] not in get_args(Kind):
            raise ValueError(f"its kind is {about['kind']!r}")
        error = plain["output_error"]
        about["output_error"] = None if error is None else float(error)
        rule: Rule | None = plain["weights"]
        if shards.layouts_of(rule) is None:
            files = [] if plain["file"] is None else [plain["file"]]
        else:
            files = plain["files"]
        entry = cls(about, rule, tuple(map(TensorFile.of_plain, files)))
        # Tensors without memory have all that the rules ask for.
        entry.assemble(entry.hollow())
        return entry

    def hollow(self) -> list[Mapping[str, Tensor]]:
        """Return the tensors of each file without memory."""
        return [file.hollow() for file in self.files]

    def assemble(self, parts: Sequence[Mapping[str, Tensor]]) -> tuple[Any, Tensor | None]:
        """Return the weights, or what was kept instead, and the norms of the values.

        Args:
            parts: The tensors of each file.
        """
        tensors = shards.joined(self.rule, parts)
        weights = None if self.rule is None else maps.put_together(self.rule, tensors)
        return weights, tensors.get(VALUE_NORMS)


@dataclass(frozen=True)
class Manifest:
    """What a recording says of itself.

    Attributes:
        entries: Of each layer.
        model: The name of the model.
        missed: Names of what was not captured, with the reasons.
        axis: What the positions are, if that was said.
    """

    entries: Sequence[Entry]
    model: str
    missed: Sequence[tuple[str, str]]
    axis: Axis | None

    def write(self, folder: Path) -> None:
        """Write it, down to the disk."""
        content = {
            "heedmap": _version(),
            "torch": str(torch.__version__),
            "model": self.model,
            "positions": POSITIONS,
            "axis": None if self.axis is None else vars(self.axis),
            "missed": list(self.missed),
            "layers": [entry.as_plain() for entry in self.entries],
        }
        # As it will be read: texts can hold halves of characters that JSON puts together.
        content = json.loads(json.dumps(content))
        schema = max(entry.schema for entry in self.entries)
        whole = {"schema": schema, "sha256": _digest(content), "recording": content}
        text = json.dumps(whole, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
        with (folder / NAME).open("xb") as file:
            # A text may have characters that are no UTF-8; JSON has escapes for what is not.
            file.write(text.encode("utf-8", errors="backslashreplace"))
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Return the manifest of a folder.

        Raises:
            InputError: if there is none, or it is not what was written.
        """
        content = _content(folder)
        try:
            entries = [
                _entry(folder, place, plain) for place, plain in enumerate(content["layers"])
            ]
            missed = [(str(name), str(reason)) for name, reason in content["missed"]]
            axis = None if content["axis"] is None else _axis(content["axis"])
            return cls(entries, str(content["model"]), missed, axis)
        except InputError:
            raise
        except _NONSENSE as error:
            raise damaged(folder, NAME, f"makes no sense ({_told(error)})") from error


_NONSENSE = (
    HeedmapError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    RuntimeError,
)


def _content(folder: Path) -> Any:
    try:
        whole = json.loads((folder / NAME).read_bytes())
    except FileNotFoundError:
        raise InputError(
            f"folder must be a recording; got {folder}, in which there is no {NAME}. "
            "Make one with seen.save(folder)."
        ) from None
    except OSError as error:
        raise InputError(
            f"folder must be a recording that can be read; got {folder} ({error.strerror})."
        ) from error
    except (ValueError, RecursionError) as error:
        raise damaged(folder, NAME, "is not JSON or cut short") from error
    schema = whole.get("schema") if isinstance(whole, dict) else None
    if type(schema) is not int or schema < 1 or not isinstance(whole.get("recording"), dict):
        raise damaged(folder, NAME, "is no manifest of a recording")
    if schema > SCHEMA:
        raise InputError(
            f"folder must be a recording of schema {SCHEMA}; got {folder}, whose {NAME} has schema "
            f"{schema}. A newer heedmap wrote it: upgrade."
        )
    if whole.get("sha256") != _digest(whole["recording"]):
        raise damaged(folder, NAME, "was altered: its SHA-256 is another")
    return whole["recording"]


def _entry(folder: Path, place: int, plain: Any) -> Entry:
    try:
        return Entry.of_plain(plain)
    except _NONSENSE as error:
        what = f"makes no sense at layer {place} ({_told(error)})"
        raise damaged(folder, NAME, what) from error


def _axis(plain: Any) -> Axis:
    if plain["kind"] not in get_args(AxisKind):
        raise ValueError(f"the kind of its axis is {plain['kind']!r}")
    return Axis(
        plain["kind"],
        tuple(map(str, plain["labels"])),
        tuple((float(start), float(end)) for start, end in plain["spans"]),
        str(plain["text"]),
        tuple((int(first), int(last)) for first, last in plain["frames"]),
    )


def _told(error: BaseException) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _version() -> str:
    try:
        return version("heedmap")
    except PackageNotFoundError:
        return "unknown"
