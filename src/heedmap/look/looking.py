"""The whole walk of a look: run, measure, name, choose, list, draw, write."""

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from heedmap.analysis.figures import HeadFigures
from heedmap.analysis.kind_rules import REPEATED, RULES, SIMILAR
from heedmap.analysis.segments import numbers_of
from heedmap.axes import Axis
from heedmap.errors import ArgumentError
from heedmap.layers import Layer
from heedmap.look.choosing import Choice, check_asked
from heedmap.look.folder import check_free, filled_at_once, write_summary
from heedmap.look.naming import name_heads
from heedmap.look.pictures import draw, notes_on_pictures
from heedmap.look.running import Progress, Run, open_source, run
from heedmap.look.table import Row, moment_rows, query_row, token_rows
from heedmap.media import Film, Sound, Text
from heedmap.plot.figures import require_matplotlib
from heedmap.recording import check_free as check_recording_free

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class Look:
    """What was seen in one input.

    Attributes:
        kind: ``"text"``, ``"audio"`` or ``"video"``.
        name: What the input is called.
        model: The name of the model, or ``"none"``.
        weights_from: Licence and origin of the model's weights, where a package brought them.
        axis: What the positions are.
        layers: The weights of each layer, ``[heads, query, key]``, as lazy maps.
        heads: The figures of each head.
        labels: What each head does, ``labels[layer][head]``.
        chosen: The head that is shown large, and why.
        query: The positions that the query means; empty without one.
        question: The query as it was put.
        rows: What the query, or each token or some moments, look at in the chosen head.
        segments: For sound and film, first and last second of each segment.
        notes: Remarks for people.
        folder: Where the pictures are; None if none were asked for.
        files: The names of the files there.
        recording: Where the recording is; None if none was asked for.
    """

    kind: str
    name: str
    model: str
    weights_from: dict[str, str] | None
    axis: Axis
    layers: tuple[Layer, ...]
    heads: tuple[HeadFigures, ...]
    labels: tuple[tuple[str, ...], ...]
    chosen: Choice
    query: tuple[int, ...]
    question: str | None
    rows: tuple[Row, ...]
    segments: tuple[tuple[float, float], ...]
    notes: tuple[str, ...]
    folder: Path | None = None
    files: tuple[str, ...] = ()
    recording: Path | None = None

    @property
    def label(self) -> str:
        """What the chosen head does."""
        return self.labels[self.chosen.layer][self.chosen.head]

    def summary(self) -> dict[str, Any]:
        """Return everything but the weights as plain values, as ``summary.json`` has it."""
        return {
            "schema": SCHEMA,
            "input": {"name": self.name, "kind": self.kind, "positions": len(self.axis)},
            "model": {
                "name": self.model,
                "layers": len(self.layers),
                "modules": [layer.name for layer in self.layers],
                "weights_from": self.weights_from,
            },
            "chosen": asdict(self.chosen) | {"label": self.label},
            "query": None if self.question is None else self._query_summary(),
            "table": [asdict(row) for row in self.rows],
            "segments": [{"start_seconds": a, "end_seconds": b} for a, b in self.segments],
            "heads": [
                {"layer": f.layer, "head": f.head, "label": self.labels[f.layer][f.head]}
                | {k: v for k, v in _rounded(asdict(f)).items() if k not in ("layer", "head")}
                for f in self.heads
            ],
            "label_rules": RULES,
            "notes": list(self.notes),
            "files": list(self.files),
        }

    def _query_summary(self) -> dict[str, Any]:
        shown = [self.axis.describe(i) for i in self.query]
        return {"question": self.question, "positions": list(self.query), "found": shown}


def look(
    source: str | Path | Text | Sound | Film,
    *,
    model: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    query: str | None = None,
    output: str | Path | None = None,
    save: str | Path | None = None,
    force: bool = False,
    start_seconds: float = 0.0,
    progress: Progress = lambda _: None,
) -> Look:
    """Return what the heads of a model look at in a text, a sound or a film.

    Args:
        source: Words, the path of a file, or what `heedmap.media.open_media` returns.
        model: A folder or a name on the hub; ``"none"`` for attention over plain features; None for
            the model of the house (texts: multilingual-e5-small; sounds: Whisper tiny.en; films:
            none).
        layer: The layer to show large, from 0; chosen by `heedmap.look.choosing.choose` without it.
        head: The head to show large, likewise.
        query: What shall look: a token or piece of text (``他``, the second one ``他#2``), a
            position (``@7``), a time (``12.5s``), a film frame (``f250``).
        output: The folder for pictures and summary, which appears whole; None writes nothing.
        save: The folder for a recording of all layers as the model has them, which
            `heedmap.open` opens; None writes none. Its axis names their first positions: a model
            may have more, which are padding.
        force: Whether to replace the results and the recording of an earlier look that lie there.
        start_seconds: For a sound, where to begin: some models take 30 s at a time.
        progress: Called with a line of text before something slow begins.

    Raises:
        InputError: for an input, a query or an output folder that cannot be used.
        ArgumentError: for a layer, head, model or start that does not fit the input.
        ModelError: for a model that cannot be loaded or looked into.
        FetchError: for packaged weights that cannot be fetched.
        MissingExtraError: for an optional package that is missing.

    Cost: the model; then a few passes over each map, a strip at a time: for 24 heads of 1500
    positions about three seconds.

    Example:
        >>> seen = look("to be or not to be", model="none", query="b")
        >>> [key.text for key in seen.rows[0].keys[:2]]
        ['b', 'b']
    """
    if output is not None:
        require_matplotlib()
        check_free(Path(output), force=force)
    if save is not None:
        _check_save(save, output, force)
    if not math.isfinite(start_seconds):
        raise ArgumentError(f"start_seconds must be a finite number; got {start_seconds}.")
    made = run(open_source(source), model=model, start_seconds=start_seconds, progress=progress)
    check_asked(made, layer, head)
    location = made.axis.locate(query) if query is not None else None
    positions = location.positions if location else ()
    named = name_heads(made, layer=layer, head=head, query=positions, progress=progress)
    choice = named.choice
    notes = [*made.notes, *([location.note] if location and location.note else [])]
    notes += _captions(made, named.labels[choice.layer][choice.head])
    seen = Look(
        kind=made.kind,
        name=made.name,
        model=made.model,
        weights_from=made.weights_from,
        axis=made.axis,
        layers=made.layers,
        heads=named.heads,
        labels=named.labels,
        chosen=choice,
        query=positions,
        question=query,
        rows=_rows(made, choice, positions),
        segments=_segments(made),
        notes=tuple(notes),
    )
    if output is not None:
        seen = _written(seen, made, Path(output), save, force, progress)
    elif save is not None:
        _save(made, save, force, progress)
    return seen if save is None else replace(seen, recording=Path(save))


def _check_save(save: str | Path, output: str | Path | None, force: bool) -> None:
    if output is not None and os.path.realpath(save) == os.path.realpath(output):
        raise ArgumentError(f"save must be another folder than output; got {save} for both.")
    check_recording_free(save, force=force)


def _save(made: Run, folder: str | Path, force: bool, progress: Progress) -> None:
    progress("Saving …")
    made.seen.save(folder, axis=made.axis, force=force)


def _written(
    seen: Look,
    made: Run,
    folder: Path,
    save: str | Path | None,
    force: bool,
    progress: Progress,
) -> Look:
    progress("Drawing …")
    with filled_at_once(folder, force=force) as temporary:
        files = draw(made, seen.labels, seen.chosen, seen.query, temporary)
        notes = (*seen.notes, *notes_on_pictures(made, seen.query))
        told = {**vars(seen), "notes": notes, "files": (*files, "summary.json"), "folder": folder}
        seen = Look(**told)
        write_summary(temporary, seen.summary())
        if save is not None:
            _save(made, save, force, progress)
    return seen


def _rows(made: Run, choice: Choice, query: Sequence[int]) -> tuple[Row, ...]:
    weights = made.layers[choice.layer].weights[choice.head]
    if made.plain is None:
        row = query_row(weights, made.axis, query) if query else None
        return (row,) if row else token_rows(weights, made.axis)
    segments = numbers_of(made.axis, made.plain)
    shots = (segments + 1).tolist() if made.kind == "video" else None
    if query:
        return (query_row(weights, made.axis, query, shots),)
    return moment_rows(weights, made.axis, segments, shots)


def _segments(made: Run) -> tuple[tuple[float, float], ...]:
    if made.plain is None:
        return ()
    numbers = numbers_of(made.axis, made.plain).tolist()
    begins = [i for i in range(len(numbers)) if i == 0 or numbers[i] != numbers[i - 1]]
    ends = [*(i - 1 for i in begins[1:]), len(numbers) - 1]
    spans = made.axis.spans
    return tuple(
        (round(spans[i][0], 3), round(spans[j][1], 3)) for i, j in zip(begins, ends, strict=True)
    )


def _captions(made: Run, label: str) -> list[str]:
    """Return what a person should not read into the picture."""
    if label == REPEATED:
        return ["“repeated word” means the same characters again; it is not coreference"]
    if made.kind == "audio" and label == SIMILAR["audio"]:
        return [
            "moments look at moments that sound alike: structure that one can see, not a diariser"
        ]
    return []


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in figures.items()}
