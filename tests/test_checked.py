"""The checks of shapes and types that the tests run under do find what is wrong."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import jaxtyping
import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float
from torch import Tensor

import heedmap

from .checked import checked, unchecked

REFUSED = BeartypeCallHintViolation, jaxtyping.TypeCheckError


@checked
def weigh(
    weights: Float[Tensor, "query key"], value: Float[Tensor, "key width"], scale: float = 1.0
) -> Float[Tensor, "query width"]:
    """Return what weights gather; with no scale at all, the wrong thing."""
    return weights @ value * scale if scale else value


@checked
def rows(x: Float[Tensor, "row width"]) -> Iterator[Float[Tensor, " width"]]:
    yield from x


@checked
@dataclass
class Held:
    names: list[str]
    later: "Later | None" = None


class Later:
    pass


@checked
def of_later(x: Float[Tensor, " width"], held: "NowhereToBeFound") -> int:
    return len(x) if held else 0


def test_what_fits_passes() -> None:
    assert weigh(torch.ones(2, 3), torch.ones(3, 4), 2).shape == (2, 4)
    assert weigh(torch.ones(5, 3), value=torch.ones(3, 1)).shape == (5, 1)
    assert len(list(rows(torch.ones(2, 3)))) == 2
    assert Held(["a"]).names == ["a"]
    assert of_later(torch.ones(3), Later()) == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: weigh(torch.ones(2, 3), torch.ones(4, 5)),
        lambda: weigh(torch.ones(2, 3), value=torch.ones(3)),
        lambda: weigh(torch.ones(2, 3).long(), torch.ones(3, 4)),
        lambda: weigh(torch.ones(2, 3), torch.ones(3, 4), cast(Any, "2")),
        lambda: weigh(torch.ones(2, 3), torch.ones(3, 4), 0),
        lambda: rows(torch.ones(2)),
        lambda: Held([cast(Any, 1)]),
        lambda: of_later(torch.ones(2, 3), Later()),
    ],
)
def test_what_does_not_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(REFUSED):
        call()


def test_in_a_block_nothing_is_checked() -> None:
    with unchecked():
        assert weigh(torch.ones(2, 3), torch.ones(3, 4), 0).shape == (3, 4)
    with pytest.raises(REFUSED):
        weigh(torch.ones(2, 3), torch.ones(3, 4), 0)


def test_the_plugin_checks_heedmap(request: pytest.FixtureRequest) -> None:
    if not request.config.pluginmanager.hasplugin("tests.checked"):
        pytest.skip("run without -p tests.checked")
    with pytest.raises(REFUSED):
        heedmap.AttentionMap.from_weights(cast(Any, "weights"))
