"""Which head is shown large when nobody has said which."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from heedmap.analysis.figures import HeadFigures
from heedmap.analysis.kind_rules import FIRST, REPEATED, SOME_FAR, SPECIAL, label_of
from heedmap.analysis.repeats import Repeats
from heedmap.analysis.rows import rows_of
from heedmap.errors import ArgumentError
from heedmap.look.running import NO_MODEL, Run


@dataclass(frozen=True)
class Choice:
    """The head that is shown large, and why."""

    layer: int
    head: int
    reason: str


def choose(
    run: Run,
    heads: Sequence[HeadFigures],
    *,
    layer: int | None,
    head: int | None,
    query: Sequence[int],
) -> Choice:
    """Return the head to show.

    What `layer` and `head` leave open is decided so: for a text with repeats, the head named
    “repeated word” in which the query, if it has repeats, gives them most, or else in which
    repeats get most beyond their distance; for sound and film, among heads that give at least a
    third of their weight to moments more than a second away, the one that prefers those that are
    alike most often; else the least even head that is no sink. `check_asked` has passed `layer`
    and `head`.
    """
    left = [
        figures
        for figures in heads
        if layer in (None, figures.layer) and head in (None, figures.head)
    ]
    if len(left) == 1:
        given = layer is not None or head is not None
        return _choice(left[0], "as asked for" if given else "the only one there is")
    names = {id(figures): label_of(figures, run.axis.kind) for figures in left}
    repeated = [figures for figures in left if names[id(figures)] == REPEATED]
    if repeated:
        return _most_repeated(run, repeated, query)
    far = [f for f in left if f.prefers_alike is not None and (f.far or 0) >= SOME_FAR]
    if far:
        found = max(far, key=lambda figures: figures.prefers_alike or 0)
        return _choice(
            found,
            "of the heads that look further than a second, the one that prefers what is alike by "
            f"plain features most often: in {found.prefers_alike:.0%} of comparisons",
        )
    open_eyed = [f for f in left if names[id(f)] not in (FIRST, SPECIAL)] or left
    found = min(open_eyed, key=lambda figures: figures.evenness)
    return _choice(found, "the head with the least entropy that is no sink")


def _most_repeated(run: Run, heads: list[HeadFigures], query: Sequence[int]) -> Choice:
    repeats = Repeats(run.axis)
    asking = [position for position in query if bool(repeats.has_repeat[position])]
    if not asking:
        found = max(heads, key=lambda figures: figures.repeats_beyond_distance or 0)
        return _choice(
            found,
            f"of the heads that follow repeated words, the strongest: "
            f"{found.on_repeats or 0:.0%} of a repeated token's weight",
        )

    def on_repeats(figures: HeadFigures) -> float:
        rows = rows_of(run.layers[figures.layer].weights[figures.head, torch.tensor(asking)])
        related = torch.cat([repeats.tile(range(i, i + 1)) for i in asking])
        return float((rows * related).sum(1).mean())

    found, share = _largest(heads, on_repeats)
    return _choice(
        found,
        f"of the heads that follow repeated words, the one in which the query gives most to its "
        f"repeats: {share:.0%}",
    )


def _largest(
    heads: list[HeadFigures], measure: Callable[[HeadFigures], float]
) -> tuple[HeadFigures, float]:
    values = [measure(figures) for figures in heads]
    best = max(range(len(heads)), key=values.__getitem__)
    return heads[best], values[best]


def _choice(figures: HeadFigures, reason: str) -> Choice:
    return Choice(figures.layer, figures.head, reason)


def check_asked(run: Run, layer: int | None, head: int | None) -> None:
    """Refuse a layer or head that there is not.

    Raises:
        ArgumentError: if there is no such layer or head.
    """
    layers = len(run.layers)
    of = "without a model" if run.model == NO_MODEL else f"of {run.model}"
    if layer is not None and not 0 <= layer < layers:
        raise ArgumentError(
            f"layer must be from 0 to {layers - 1} for {run.model}; got {layer}."
            if layers > 1
            else f"layer must be 0, the only one {of}; got {layer}."
        )
    sizes = [run.layers[i].weights.shape[0] for i in (range(layers) if layer is None else [layer])]
    heads = min(sizes)
    if head is not None and not 0 <= head < heads:
        raise ArgumentError(
            f"head must be from 0 to {heads - 1} for {run.model}; got {head}."
            if heads > 1
            else f"head must be 0, the only one {of}; got {head}."
        )
