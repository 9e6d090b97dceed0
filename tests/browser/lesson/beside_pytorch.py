"""What the tests of the lesson share: opening it, and its numbers beside PyTorch's."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from heedmap.lesson.numbers import start_numbers

NUMBERS = start_numbers()
TOLERANCE = 1e-6

READ = """() => [...document.querySelectorAll("[data-matrix]")].map((table) => {
    const rows = [];
    for (const cell of table.querySelectorAll("[data-row]")) {
        const text = cell.querySelector("input")?.value ?? cell.textContent;
        (rows[cell.dataset.row] ??= [])[cell.dataset.column] = [Number(cell.dataset.value), text];
    }
    const sums = [...table.querySelectorAll("[data-sum]")].map((cell) => Number(cell.dataset.sum));
    return { name: table.dataset.matrix, rows, sums };
})"""


def exact(numbers: Any) -> Tensor:
    """Return numbers with all their digits."""
    return torch.tensor(numbers, dtype=torch.float64)


@dataclass
class Knobs:
    """What the page computes from, as far as it is not the start."""

    frames: Tensor = field(default_factory=lambda: exact(NUMBERS["sounds"][0]))
    order: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    valid: list[bool] = field(default_factory=lambda: [True] * 5)
    weights: dict[str, Tensor] = field(
        default_factory=lambda: {
            name: exact(NUMBERS[f"w_{name[1]}"]) for name in ("wq", "wk", "wv")
        }
    )
    scaled: bool = True
    temperature: float = 1.0
    causal: bool = False
    heads: int = 1
    positions: bool = False

    @classmethod
    def of(cls, state: dict[str, Any]) -> "Knobs":
        """Return the knobs as the page says that they are."""
        return cls(
            exact(state["frames"]),
            state["order"],
            state["valid"],
            {name: exact(state[name]) for name in ("wq", "wk", "wv")},
            *(state[name] for name in ("scaled", "temperature", "causal", "heads", "positions")),
        )


def places(frames: int, features: int) -> Tensor:
    """Return the sines and cosines of “Attention is all you need”, section 3.5."""
    place = torch.arange(frames).double()[:, None]
    feature = torch.arange(features)
    angle = place / 10000 ** (2 * (feature // 2) / features)
    return torch.where(feature % 2 == 1, angle.cos(), angle.sin())


def expected(knobs: Knobs, head: int) -> dict[str, Tensor]:
    """Return every matrix of the page as PyTorch computes it, in float64."""
    x = knobs.frames[knobs.order]
    source = x + places(*x.shape) if knobs.positions else x
    q, k, v = (source @ knobs.weights[name] for name in ("wq", "wk", "wv"))
    size = len(x)
    visible = torch.tensor(knobs.valid)[knobs.order].expand(size, size)
    if knobs.causal:
        visible = visible & torch.ones(size, size, dtype=torch.bool).tril()
    split = [part.unflatten(-1, (knobs.heads, -1)).transpose(0, 1) for part in (q, k, v)]
    scores = split[0] @ split[1].mT
    scaled = scores / math.sqrt(8 // knobs.heads) if knobs.scaled else scores
    seen = (scaled / knobs.temperature).masked_fill(~visible, -torch.inf)
    weights = seen.softmax(-1).nan_to_num(0.0)
    output = (weights @ split[2]).transpose(0, 1).flatten(1)
    return {
        "x": x,
        "input": source,
        **knobs.weights,
        "q": q,
        "k": k,
        "v": v,
        "scores": scores[head],
        "scaled": scaled[head],
        "weights": weights[head],
        "output": output,
    }


def assert_shown(read: list[dict[str, Any]], wanted: dict[str, Tensor]) -> None:
    """Fail unless every number on the page is that of PyTorch, and is written as it is."""
    assert {shown["name"] for shown in read} == wanted.keys()
    for shown in read:
        tensor = wanted[shown["name"]]
        values = exact([[value for value, _ in row] for row in shown["rows"]])
        assert values.shape == tensor.shape, shown["name"]
        torch.testing.assert_close(values, tensor, rtol=1e-9, atol=TOLERANCE)
        for row in shown["rows"]:
            for value, text in row:
                assert_written(value, text)
        if shown["sums"]:
            sums = exact(shown["sums"])
            torch.testing.assert_close(sums, tensor.sum(-1), rtol=0, atol=TOLERANCE)


def values_of(read: list[dict[str, Any]], name: str) -> Tensor:
    """Return one matrix of the page."""
    [rows] = [shown["rows"] for shown in read if shown["name"] == name][:1]
    return exact([[value for value, _ in row] for row in rows])


def assert_written(value: float, text: str) -> None:
    """Fail unless a text is a number, rounded; 0 alone stands for exactly 0."""
    assert (text == "0") == (value == 0), (value, text)
    written = float(text.replace("−", "-"))
    digits = len(text.partition(".")[2])
    if "e" in text:
        assert math.isclose(written, value, rel_tol=0.06)
    else:
        assert abs(written - value) <= 0.5 * 10**-digits + 1e-12, (value, text)
