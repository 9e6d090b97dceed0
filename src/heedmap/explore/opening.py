"""From a map, from what was seen of a model, or from a recording to a scene."""

import mimetypes
from collections.abc import Sequence
from pathlib import Path

from heedmap.attention_map import AttentionMap
from heedmap.axes import Axis
from heedmap.errors import ArgumentError, InputError, ShapeError, UnsupportedError
from heedmap.explore.scene import Media, Scene, SceneLayer, no_file
from heedmap.layers import Layer
from heedmap.lazy import sharded_in
from heedmap.recording.opening import RecordedLayer
from heedmap.seen import Seen


def scene_of_map(
    weights: AttentionMap,
    *,
    axis: Axis | None = None,
    key_axis: Axis | None = None,
    media: str | Path | None = None,
    name: str = "attention",
) -> Scene:
    """Return the scene of one map, whose leading dimensions are its heads.

    Args:
        weights: The map.
        axis: What its queries are, and its keys where there are as many; bare positions without.
        key_axis: What its keys are.
        media: The file of the sound, film or text that the map is about.
        name: What people call it.

    Raises:
        ShapeError: for an axis of another length than its side of the map.
        InputError: for a file that is not there, or no sound, film or text.
        UnsupportedError: for a map that several ranks share.

    Cost: nothing is computed.
    """
    queries, keys = weights.shape[-2:]
    axis = _fitting("axis", axis, queries)
    if key_axis is None and keys == queries:
        key_axis = axis
    axes = [axis]
    layer = _scene_layer(Layer("map", "self", 0, 1, weights), weights, axes, (axis, key_axis))
    return Scene(name, (layer,), tuple(axes), media=media_of(media, axes))


def scene_of_seen(
    seen: Seen,
    *,
    axis: Axis | None = None,
    media: str | Path | None = None,
    name: str = "attention",
) -> Scene:
    """Return the scene of the layers of a model, or of a recording.

    A sequence that a model filled up is shown without what it was filled up with: layers from more
    positions than the axis has are cropped to those.

    Args:
        seen: What `heedmap.watch` saw or `heedmap.open` opened.
        axis: What the positions of self-attention are; that of the recording without it.
        media: The file of the sound, film or text that it is about.
        name: What people call it.

    Raises:
        ArgumentError: if no layer was kept as a map.
        InputError: for a file that is not there, or no sound, film or text.
        UnsupportedError: for maps that several ranks share.
    """
    axis = getattr(seen, "axis", None) if axis is None else axis
    axes: list[Axis] = []
    kept: list[SceneLayer] = []
    notes = [f"{name}: not to be seen, {why}" for name, why in seen.missed]
    for layer in seen.layers:
        weights = layer.weights
        if not isinstance(weights, AttentionMap):
            notes.append(f"{layer.name}: no map of it was kept, only {layer.kept}")
            continue
        weights, sides = _named(layer, weights, axis)
        kept.append(_scene_layer(layer, weights, axes, sides))
    if not kept:
        raise ArgumentError(
            "maps must have been kept of what is explored; got none. Watch with keep='factors'."
        )
    found = media_of(media, axes)
    return Scene(name, tuple(kept), tuple(axes), seen.model, found, notes=tuple(notes))


def _named(
    layer: Layer, weights: AttentionMap, axis: Axis | None
) -> tuple[AttentionMap, tuple[Axis | None, Axis | None]]:
    """Return the map of the positions that have a meaning, and the axes of its two sides."""
    queries, keys = weights.shape[-2:]
    if axis is None or layer.kind == "cross" or len(axis) > queries or queries != keys:
        return weights, (None, None)
    size = len(axis)
    cropped = weights[..., :size, :size]
    assert isinstance(cropped, AttentionMap)
    return cropped, (axis, axis)


def _scene_layer(
    layer: Layer,
    weights: AttentionMap,
    axes: list[Axis],
    sides: tuple[Axis | None, Axis | None],
) -> SceneLayer:
    """Return a layer of the scene, whose axes are found among `axes` or added to them."""
    if sharded_in(weights._rule) is not None:
        raise UnsupportedError(
            "a map to be explored must be that of one process, which answers the page by itself; "
            "got one that several ranks share. Save it, and explore what heedmap.open opens."
        )
    *lead, queries, keys = weights.shape
    numbers = []
    for axis, size in zip(sides, (queries, keys), strict=True):
        axis = _fitting("key_axis", axis, size)
        if axis not in axes:
            axes.append(axis)
        numbers.append(axes.index(axis))
    heads = _head_names(lead)
    stack = weights.reshape(len(heads), queries, keys)
    assert isinstance(stack, AttentionMap)
    labels = ("",) * len(heads)
    unchanged = layer.require_unchanged if isinstance(layer, RecordedLayer) else no_file
    query_axis, key_axis = numbers
    return SceneLayer(layer.name, layer.kind, stack, query_axis, key_axis, heads, labels, unchanged)


def _head_names(lead: Sequence[int]) -> tuple[str, ...]:
    """Return a name for each matrix of a stack, such as ``"3"``, or ``"1.3"`` in a batch.

    >>> _head_names([1, 3]), _head_names([2, 2]), _head_names([])
    (('0', '1', '2'), ('0.0', '0.1', '1.0', '1.1'), ('0',))
    """
    names = [""]
    sizes = [size for size in lead if size != 1] or [1]
    for size in sizes:
        names = [f"{name}.{i}" if name else str(i) for name in names for i in range(size)]
    return tuple(names)


def _fitting(name: str, axis: Axis | None, size: int) -> Axis:
    if axis is None:
        return Axis.of_positions(size)
    if len(axis) != size:
        raise ShapeError(f"{name} must have {size} positions, as the map; got {len(axis)}.")
    return axis


def media_of(source: str | Path | None, axes: Sequence[Axis]) -> tuple[Media, ...]:
    """Return the file that maps are about; without one, the text that the axes have.

    Raises:
        InputError: for a file that is not there, or no sound, film or text.
    """
    if source is None:
        texts = dict.fromkeys(axis.text for axis in axes if axis.text)
        return tuple(Media("text", "text/plain; charset=utf-8", "text", words=t) for t in texts)
    path = Path(source)
    if not path.is_file():
        raise InputError(f"media must be a file; got {path}.")
    found = _TYPES.get(path.suffix.lower()) or mimetypes.guess_type(path.name)[0] or ""
    kind = found.split("/")[0]
    if kind == "audio":
        return (Media("audio", found, path.name, path),)
    if kind == "video":
        return (Media("video", found, path.name, path),)
    if kind == "text":
        return (Media("text", "text/plain; charset=utf-8", path.name, path),)
    raise InputError(f"media must be a sound, a film or a text by its name; got {path}.")


_TYPES = {
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".opus": "audio/ogg",
    ".mkv": "video/x-matroska",
    ".md": "text/markdown",
}
"""What the tables of operating systems lack or name by half-forgotten names."""
