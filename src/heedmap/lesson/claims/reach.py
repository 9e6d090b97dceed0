"""How far back a position reaches: steps between two positions, and how much gradient arrives."""

from collections.abc import Callable

import torch
from torch import nn

from heedmap.lesson.claims.curves import Curves, by_point
from heedmap.lesson.claims.networks import KERNEL, MAKERS, width_for
from heedmap.lesson.claims.recall import FEATURES, SYMBOLS

DISTANCES = (1, 2, 4, 8, 16, 32, 64, 128)


def steps_between(name: str, distance: int) -> int:
    """Return through how many operations one after the other the last position learns of another.

    Args:
        name: One of `MAKERS`; the CNN gets as many layers as it needs.
        distance: How many steps back the other position lies.

    Example:
        >>> [steps_between(name, 64) for name in ("attention", "lstm", "gru", "cnn")]
        [1, 65, 65, 6]
    """
    if name == "attention":
        return 1
    if name in ("lstm", "gru"):
        # The state is updated at that position and at each one behind it.
        return distance + 1
    layers, seen = 0, 0
    while seen < distance:
        seen += (KERNEL - 1) * 2**layers
        layers += 1
    return layers


def measure_steps() -> Curves:
    """Return the steps between two positions over their distance; nothing in it is random."""
    lines = {name: [[float(steps_between(name, d))] for d in DISTANCES] for name in MAKERS}
    return Curves(DISTANCES, lines)


def gradients(name: str, seed: int) -> list[float]:
    """Return how strongly the untrained last position depends on each of `DISTANCES` back.

    It is the length of the gradient of what the last position has read, in a random direction, to
    the input there, as a share of that to all inputs together.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        width = width_for(name, FEATURES, SYMBOLS)
        network: nn.Module = MAKERS[name](FEATURES, width)
        x = torch.randn(1, DISTANCES[-1] + 1, FEATURES, requires_grad=True)
        direction = torch.randn(width)
    read = network(x)[0, -1] @ direction
    (gradient,) = torch.autograd.grad(read, x)
    lengths = gradient[0].double().norm(dim=-1)
    return [float(lengths[-1 - distance] / lengths.norm()) for distance in DISTANCES]


def measure_reach(seeds: int, tell: Callable[[str], None]) -> Curves:
    """Return what share of the gradient reaches back how far."""
    tell("reach: gradients of untrained networks")
    return Curves(
        DISTANCES,
        {name: by_point([gradients(name, seed) for seed in range(seeds)]) for name in MAKERS},
    )
