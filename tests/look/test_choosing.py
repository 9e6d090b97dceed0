"""The head that is shown large."""

from collections.abc import Callable

import pytest
import torch

from heedmap.errors import ArgumentError
from heedmap.look.choosing import check_asked, choose
from heedmap.look.figures import measure
from heedmap.look.running import Run


def rows(size: int, **targets: int) -> torch.Tensor:
    """Return weights that are even but for rows like r2=5, which look at one position."""
    weights = torch.full((size, size), 1 / size)
    for name, key in targets.items():
        weights[int(name[1:])] = 0.02
        weights[int(name[1:]), key] = 1 - 0.02 * (size - 1)
    return weights


WORDS = ["x", "rose", "is", "a", "rose", "a"]
EVEN = rows(6)
ROSES = rows(6, r1=4, r4=1)
BOTH = rows(6, r1=4, r4=1, r3=5, r5=3)
NARROW = rows(6, r0=3, r1=5, r2=0, r3=1, r4=2, r5=2)
SINK = rows(6, r0=0, r1=0, r2=0, r3=0, r4=0, r5=0)


def choice(run: Run, **wish: int) -> tuple[int, int]:
    query = [wish.pop("query")] if "query" in wish else []
    given = {"layer": wish.get("layer"), "head": wish.get("head")}
    check_asked(run, **given)
    made = choose(run, measure(run), **given, query=query)
    return made.layer, made.head


def test_the_strongest_repeats_are_chosen(text_run: Callable[..., Run]) -> None:
    run = text_run(WORDS, torch.stack([EVEN, ROSES, BOTH, SINK]).reshape(2, 2, 6, 6))
    assert choice(run) == (1, 0)
    assert choice(run, query=3) == (1, 0)
    assert choice(run, layer=0) == (0, 1)
    assert choice(run, head=1) == (0, 1)
    assert choice(run, layer=1, head=1) == (1, 1)


def test_without_repeats_the_narrowest_that_is_no_sink(text_run: Callable[..., Run]) -> None:
    words = list("uvwxyz")
    run = text_run(words, torch.stack([EVEN, NARROW, SINK, EVEN]).reshape(2, 2, 6, 6))
    assert choice(run) == (0, 1)
    assert choice(run, layer=1) == (1, 1)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"layer": 2}, "layer must be from 0 to 1 for tiny; got 2."),
        ({"layer": -1}, "layer must be from 0 to 1 for tiny; got -1."),
        ({"head": 9}, "head must be from 0 to 1 for tiny; got 9."),
    ],
)
def test_no_such_layer_or_head(
    wish: dict[str, int], message: str, text_run: Callable[..., Run]
) -> None:
    run = text_run(WORDS, torch.stack([EVEN, ROSES, BOTH, SINK]).reshape(2, 2, 6, 6))
    with pytest.raises(ArgumentError) as caught:
        choice(run, **wish)
    assert str(caught.value) == message


def test_the_only_head(text_run: Callable[..., Run]) -> None:
    run = text_run(WORDS, EVEN[None, None])
    assert choice(run) == (0, 0)
    with pytest.raises(ArgumentError, match="layer must be 0, the only one of tiny; got 1"):
        choice(run, layer=1)
    with pytest.raises(ArgumentError, match="head must be 0, the only one of tiny; got 2"):
        choice(run, head=2)
