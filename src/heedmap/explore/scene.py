"""What there is to see: maps with their axes, and the text, sound or film that they are about."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heedmap.attention_map import AttentionMap
from heedmap.axes import Axis
from heedmap.errors import ArgumentError, ShapeError
from heedmap.explore.grid import zooms_of

SCHEMA = 1

MediaKind = Literal["text", "audio", "video"]


@dataclass(frozen=True)
class Media:
    """A text, sound or film that can be read, heard or seen beside its map.

    Attributes:
        kind: What it is.
        content_type: Its type for browsers, such as ``audio/wav``.
        title: What people call it.
        path: Where it lies; None for words that have no file.
        words: The text itself, where there is no file.
    """

    kind: MediaKind
    content_type: str
    title: str
    path: Path | None = None
    words: str = ""


def no_file() -> None:
    """Do nothing, for maps that lie in no file."""


@dataclass(frozen=True, eq=False)
class SceneLayer:
    """The maps of one layer.

    Attributes:
        name: The name of its module.
        kind: ``"self"``, ``"causal"`` or ``"cross"``.
        weights: The maps ``[head, query, key]``.
        query_axis: The number of the axis of its queries among those of the scene.
        key_axis: The number of the axis of its keys.
        heads: What each head is called.
        labels: What each head does, or an empty text; one for each head.
        require_unchanged: Called before anything of the maps is read; it raises an InputError if
            the file that they lie in was changed.
    """

    name: str
    kind: str
    weights: AttentionMap
    query_axis: int
    key_axis: int
    heads: tuple[str, ...]
    labels: tuple[str, ...]
    require_unchanged: Callable[[], None] = no_file


@dataclass(frozen=True, eq=False)
class Scene:
    """All that one page shows.

    Attributes:
        name: What the input is called.
        layers: The maps.
        axes: What the positions are; layers name them by number.
        model: The name of the model, or an empty text.
        media: What the maps are about.
        chosen: The layer and the head to begin with.
        query: The position to begin with, if one was asked for.
        notes: Remarks for people.
    """

    name: str
    layers: tuple[SceneLayer, ...]
    axes: tuple[Axis, ...]
    model: str = ""
    media: tuple[Media, ...] = ()
    chosen: tuple[int, int] = (0, 0)
    query: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse axes that do not fit the maps, and a scene in which there is nothing.

        Raises:
            ArgumentError: if there is no layer.
            ShapeError: for an axis of another length than its side of a map.
        """
        if not self.layers:
            raise ArgumentError("layers must hold at least one map; got none.")
        for layer in self.layers:
            for side, number, size in zip(
                ("query", "key"),
                (layer.query_axis, layer.key_axis),
                layer.weights.shape[1:],
                strict=True,
            ):
                if len(self.axes[number]) != size:
                    raise ShapeError(
                        f"the {side} axis of {layer.name} must have {size} positions; got "
                        f"{len(self.axes[number])}."
                    )

    def description(self) -> dict[str, Any]:
        """Return the scene as the page learns of it, without its numbers."""
        layer, head = self.chosen
        return {
            "schema": SCHEMA,
            "name": self.name,
            "model": self.model,
            "kind": self.axes[self.layers[layer].query_axis].kind,
            "layers": [_describe(layer) for layer in self.layers],
            "axes": [{"kind": a.kind, "unit": a.unit, "size": len(a)} for a in self.axes],
            "media": [
                {"name": str(number), "kind": m.kind, "type": m.content_type, "title": m.title}
                for number, m in enumerate(self.media)
            ],
            "chosen": {"layer": layer, "head": head, "query": self.query},
            "notes": list(self.notes),
        }


def _describe(layer: SceneLayer) -> dict[str, Any]:
    _, queries, keys = layer.weights.shape
    return {
        "name": layer.name,
        "kind": layer.kind,
        "queries": queries,
        "keys": keys,
        "zooms": zooms_of(queries, keys),
        "query_axis": layer.query_axis,
        "key_axis": layer.key_axis,
        "heads": list(layer.heads),
        "labels": list(layer.labels),
    }


def describe_axis(axis: Axis) -> Mapping[str, Any]:
    """Return an axis as the page has it."""
    parts: dict[str, Sequence[Any] | str] = {
        "kind": axis.kind,
        "unit": axis.unit,
        "text": axis.text,
        "labels": axis.labels,
        "spans": axis.spans,
        "frames": axis.frames,
    }
    return parts
