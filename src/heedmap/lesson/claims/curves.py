"""The form of every result: lines over one quantity, with how much they vary between seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Curves:
    """Some lines over one quantity.

    Attributes:
        x: The values of that quantity.
        lines: For each line, by name, what every seed gave at each of them.
        facts: What else belongs to it, such as the numbers of parameters.
    """

    x: tuple[float, ...]
    lines: dict[str, list[list[float]]]
    facts: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values, with means and standard deviations over the seeds."""
        return {
            "x": list(self.x),
            "series": {
                name: {
                    "mean": [_short(statistics.fmean(at)) for at in points],
                    "spread": [_short(statistics.pstdev(at)) for at in points],
                    "seeds": [[_short(value) for value in at] for at in points],
                }
                for name, points in self.lines.items()
            },
            "facts": self.facts,
        }


def by_point(runs: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return what each seed gave at each point, of what each seed gave along all points.

    >>> by_point([[1, 2, 3], [4, 5, 6]])
    [[1, 4], [2, 5], [3, 6]]
    """
    return [list(point) for point in zip(*runs, strict=True)]


def _short(value: float) -> float:
    return float(f"{value:.5g}")
