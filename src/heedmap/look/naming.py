"""What each head of a run does, and which one is shown large."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from heedmap.analysis.figures import HeadFigures
from heedmap.analysis.kind_rules import label_of
from heedmap.errors import ModelError
from heedmap.look.choosing import Choice, choose
from heedmap.look.figures import measure
from heedmap.look.running import Progress, Run


@dataclass(frozen=True, eq=False)
class Named:
    """The heads of a run.

    Attributes:
        heads: The figures of each.
        labels: What each does, ``labels[layer][head]``.
        choice: The one that is shown large, and why.
    """

    heads: tuple[HeadFigures, ...]
    labels: tuple[tuple[str, ...], ...]
    choice: Choice


def name_heads(
    made: Run, *, layer: int | None, head: int | None, query: Sequence[int], progress: Progress
) -> Named:
    """Return the names of all heads; see `heedmap.look.choosing.choose` for the rest.

    Raises:
        ModelError: for a model whose weights are not finite.

    Cost: a few passes over each map.
    """
    count = sum(part.weights.shape[0] for part in made.layers)
    progress(f"Measuring {_many(count, 'head')} over {_many(len(made.axis), 'position')} …")
    heads = measure(made)
    _check_numbers(made, heads)
    choice = choose(made, heads, layer=layer, head=head, query=query)
    labels = tuple(
        tuple(label_of(f, made.axis.kind) for f in heads if f.layer == number)
        for number in range(len(made.layers))
    )
    return Named(tuple(heads), labels, choice)


def _check_numbers(made: Run, heads: Sequence[HeadFigures]) -> None:
    broken = [figures for figures in heads if not math.isfinite(figures.entropy_nats)]
    if broken:
        first = f"layer {broken[0].layer}, head {broken[0].head}"
        raise ModelError(
            f"model must attend with finite weights; got {made.model}, whose {first} gives NaN. "
            "Its file may be damaged, or its number type too narrow."
        )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
