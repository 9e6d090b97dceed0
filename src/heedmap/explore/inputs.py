"""From what a person gives, a recording or an input for a model, to a scene."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from heedmap.errors import ArgumentError
from heedmap.explore.opening import media_of, scene_of_seen
from heedmap.explore.scene import Scene, SceneLayer
from heedmap.layers import Layer
from heedmap.look import Look
from heedmap.look.choosing import check_asked
from heedmap.look.naming import name_heads
from heedmap.look.running import Progress, Run, run
from heedmap.media import Film, Sound, Text
from heedmap.recording import open as open_recording

MANY_CELLS = 10**8
"""From this many weights in all, heads get no names: measuring them would take longer than a page
should need to open."""


def scene_of_recording(
    folder: Path,
    *,
    media: Path | None = None,
    layer: int | None = None,
    head: int | None = None,
    question: str | None = None,
) -> Scene:
    """Return the scene of a folder that `heedmap.Seen.save` wrote.

    Args:
        folder: The recording.
        media: The sound, film or text that it is about.
        layer: The map to begin with, from 0, among the layers that were kept as maps.
        head: The head to begin with.
        question: The position to begin with, as `heedmap.axes.Axis.locate` takes it.

    Raises:
        InputError: if the folder is no whole recording, or the question or the media do not fit.
        ArgumentError: if no layer of it was kept as a map, or for a layer or head that it lacks.
    """
    seen = open_recording(folder)
    scene = scene_of_seen(seen, media=media, name=folder.resolve().name)
    _require("layer", layer, len(scene.layers), scene.name)
    _require("head", head, len(scene.layers[layer or 0].heads), scene.name)
    return _asking(replace(scene, chosen=(layer or 0, head or 0)), question)


def scene_of_input(
    media: Text | Sound | Film,
    path: Path | None,
    *,
    model: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    question: str | None = None,
    start_seconds: float = 0.0,
    progress: Progress = lambda _: None,
) -> Scene:
    """Return what a model looks at in a text, a sound or a film.

    Args:
        media: The input, opened.
        path: Its file, if it is a sound or a film.
        model: As for `heedmap.look.look`.
        layer: The layer to begin with.
        head: The head to begin with.
        question: The position to begin with, such as ``他#2`` or ``12.5s``.
        start_seconds: For a sound, where to begin.
        progress: Called with a line of text before something slow begins.

    Raises:
        InputError: for an input or a question that cannot be used.
        ArgumentError: for a layer, head, model or start that does not fit the input.
    """
    made = run(media, model=model, start_seconds=start_seconds, progress=progress)
    return scene_of_run(made, path, layer=layer, head=head, question=question, progress=progress)


def scene_of_run(
    made: Run,
    path: Path | None,
    *,
    layer: int | None = None,
    head: int | None = None,
    question: str | None = None,
    progress: Progress = lambda _: None,
) -> Scene:
    """Return the scene of what a model has looked at already.

    Args:
        made: What it looked at.
        path: The file of the input, if it is a sound or a film.
        layer: The layer to begin with.
        head: The head to begin with.
        question: The position to begin with.
        progress: Called with a line of text before something slow begins.

    Raises:
        InputError: for a question that cannot be used.
        ArgumentError: for a layer or head that there is not.
    """
    check_asked(made, layer, head)
    location = made.axis.locate(question) if question is not None else None
    positions = location.positions if location else ()
    names, chosen = _heads(made, layer, head, positions, progress)
    notes = (*made.notes, *([location.note] if location and location.note else []))
    return Scene(
        made.name,
        _layers(made.layers, names),
        (made.axis,),
        made.model,
        media_of(path, (made.axis,)),
        chosen,
        positions[0] if positions else None,
        notes,
    )


def scene_of_look(seen: Look, path: Path | None) -> Scene:
    """Return the scene of what `heedmap.look.look` saw.

    Args:
        seen: What it saw.
        path: The file that was looked at, if it is a sound or a film.
    """
    return Scene(
        seen.name,
        _layers(seen.layers, seen.labels),
        (seen.axis,),
        seen.model,
        media_of(path, (seen.axis,)),
        (seen.chosen.layer, seen.chosen.head),
        seen.query[0] if seen.query else None,
        seen.notes,
    )


def _layers(layers: Sequence[Layer], labels: Sequence[tuple[str, ...]]) -> tuple[SceneLayer, ...]:
    return tuple(
        SceneLayer(
            layer.name,
            layer.kind,
            layer.weights,
            query_axis=0,
            key_axis=0,
            heads=tuple(str(number) for number in range(layer.weights.shape[0])),
            labels=words,
        )
        for layer, words in zip(layers, labels, strict=True)
    )


def _heads(
    made: Run,
    layer: int | None,
    head: int | None,
    positions: tuple[int, ...],
    progress: Progress,
) -> tuple[tuple[tuple[str, ...], ...], tuple[int, int]]:
    """Return what each head does, and the layer and head to begin with."""
    cells = sum(part.weights.numel() for part in made.layers)
    if cells > MANY_CELLS or len(made.axis) == 0:
        unnamed = tuple(("",) * part.weights.shape[0] for part in made.layers)
        return unnamed, (layer or 0, head or 0)
    named = name_heads(made, layer=layer, head=head, query=positions, progress=progress)
    return named.labels, (named.choice.layer, named.choice.head)


def _require(name: str, number: int | None, count: int, recording: str) -> None:
    if number is not None and not 0 <= number < count:
        raise ArgumentError(
            f"{name} must be from 0 to {count - 1} for the recording {recording}; got {number}."
        )


def _asking(scene: Scene, question: str | None) -> Scene:
    """Return the scene with the position that a question means."""
    if question is None:
        return scene
    axis = scene.axes[scene.layers[scene.chosen[0]].query_axis]
    return replace(scene, query=axis.locate(question).positions[0])
