"""The pictures of a look."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.analysis.kind_rules import MIXED
from heedmap.analysis.rows import rows_of
from heedmap.axes import Axis
from heedmap.look.choosing import Choice
from heedmap.look.running import Run
from heedmap.plot import find_fonts, plot_arcs, plot_atlas, plot_heatmap, plot_timeline, save_figure
from heedmap.plot.arcs import MOST_TOKENS

LEAST_BAR_SECONDS = 0.1


def draw(
    run: Run,
    labels: Sequence[Sequence[str]],
    choice: Choice,
    query: Sequence[int],
    folder: Path,
) -> list[str]:
    """Return the names of the pictures that were drawn into `folder`."""
    names = []
    for name, picture in _pictures(run, labels, choice, query):
        save_figure(picture, folder / name)
        names.append(name)
    return names


def _pictures(
    run: Run, labels: Sequence[Sequence[str]], choice: Choice, query: Sequence[int]
) -> Iterator[tuple[str, Any]]:
    heads = sum(map(len, labels))
    if heads > 1:
        shown = [["" if label == MIXED else label for label in row] for row in labels]
        chosen = choice.layer, choice.head
        maps = [layer.weights for layer in run.layers]
        yield "atlas.png", plot_atlas(maps, labels=shown, chosen=chosen)
    weights = run.layers[choice.layer].weights[choice.head]
    title = f"layer {choice.layer}, head {choice.head}: {labels[choice.layer][choice.head]}"
    if heads == 1:
        title = f"{run.layers[0].name}: {labels[0][0]}"
    name = f"layer{choice.layer}-head{choice.head}.png"
    # What a model looks at far away in a sound is faint beside what is near.
    faint = run.kind == "audio"
    yield (
        name,
        plot_heatmap(weights, query_axis=run.axis, key_axis=run.axis, log=faint, title=title),
    )
    if run.kind == "text":
        part = arcs_part(run, query)
        queries = [i - part.start for i in query] or None
        cut = weights[part.start : part.stop, part.start : part.stop]
        yield "arcs.png", plot_arcs(cut, run.axis.take(part), queries=queries)
    elif query:
        yield "timeline.png", _timeline(weights[query[0]], run, query[0])


def _timeline(shares: Float[Tensor, " key"], run: Run, query: int) -> Any:
    """Return a timeline in stretches of at least a tenth of a second: finer ones are no bars."""
    spans = run.axis.spans
    length = spans[-1][1] - spans[0][0]
    size = max(round(LEAST_BAR_SECONDS * len(spans) / length), 1) if run.kind == "audio" else 1
    if size == 1:
        return plot_timeline(shares, run.axis, query=query)
    sums = torch.nn.functional.pad(rows_of(shares), (0, -len(spans) % size))
    stretches = [
        (spans[i][0], spans[min(i + size, len(spans)) - 1][1]) for i in range(0, len(spans), size)
    ]
    axes = plot_timeline(
        sums.reshape(-1, size).sum(1), Axis.of_seconds(stretches), query=query // size
    )
    axes.set_ylabel(f"weight of each {size * length / len(spans):.2g} s")
    return axes


def arcs_part(run: Run, query: Sequence[int]) -> range:
    """Return the tokens that the arcs are drawn over: as many as are readable, query included."""
    count = len(run.axis)
    first = max(min(query[0] - MOST_TOKENS // 2, count - MOST_TOKENS), 0) if query else 0
    return range(first, min(first + MOST_TOKENS, count))


def notes_on_pictures(run: Run, query: Sequence[int]) -> list[str]:
    """Return remarks on what the pictures of a text cannot show."""
    if run.kind != "text":
        return []
    notes = []
    part = arcs_part(run, query)
    if len(part) < len(run.axis):
        notes.append(
            f"arcs.png shows tokens {part.start} to {part.stop - 1} of {len(run.axis)}: more "
            "would not be readable"
        )
    if missing := find_fonts(run.axis.labels).uncovered:
        shown = missing if len(missing) <= 8 else f"{missing[:8]}…"
        notes.append(
            f"no font here has {shown}: pictures show codes instead. Install one, for "
            "example Noto Sans CJK or WenQuanYi Micro Hei for Chinese"
        )
    return notes
