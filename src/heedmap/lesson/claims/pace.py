"""How long reading takes over the length of the sequence, on this machine."""

import time
from collections.abc import Callable

import torch

from heedmap.lesson.claims.curves import Curves
from heedmap.lesson.claims.networks import MAKERS, width_for
from heedmap.lesson.claims.recall import FEATURES, SYMBOLS

LENGTHS = tuple(2**power for power in range(6, 14))
REPEATS = 9
ENOUGH_SECONDS = 2.0
"""After so long, a length has been repeated often enough."""

LEAST_REPEATS = 3


def milliseconds(name: str, length: int, *, learning: bool) -> list[float]:
    """Return how long the faster half of some passes over one sequence took.

    What else a machine does can only make a pass slower.

    Args:
        name: One of `MAKERS`.
        length: How many positions the sequence has.
        learning: Whether the pass goes back, too, for the gradients of all parameters.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = MAKERS[name](FEATURES, width_for(name, FEATURES, SYMBOLS))
        x = torch.randn(1, length, FEATURES)

    def once() -> float:
        begin = time.perf_counter()
        with torch.set_grad_enabled(learning):
            read = network(x)
        if learning:
            network.zero_grad()
            read[0, -1].sum().backward()
        return 1000 * (time.perf_counter() - begin)

    once()
    taken: list[float] = []
    while len(taken) < LEAST_REPEATS or (
        len(taken) < REPEATS and sum(taken) < 1000 * ENOUGH_SECONDS
    ):
        taken.append(once())
    return sorted(taken)[: (len(taken) + 1) // 2]


def measure_pace(
    tell: Callable[[str], None], *, learning: bool, lengths: tuple[int, ...] = LENGTHS
) -> Curves:
    """Return the time of one pass of each network over the length of the sequence."""
    lines: dict[str, list[list[float]]] = {}
    for name in MAKERS:
        lines[name] = [milliseconds(name, length, learning=learning) for length in lengths]
        what = "learning" if learning else "reading"
        tell(f"pace: {name}, {what} {lengths[-1]} positions: {min(lines[name][-1]):.0f} ms")
    return Curves(lengths, lines, {"threads": torch.get_num_threads()})
