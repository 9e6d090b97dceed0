"""Can it answer what lies D steps back? Accuracy over D, after the same training for all.

A sequence of random symbols, one of which is marked. At its end, the network must name the marked
symbol, D steps back.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedmap.lesson.claims.curves import Curves
from heedmap.lesson.claims.networks import MAKERS, Answering, size_of, width_for

SYMBOLS = 8
FEATURES = SYMBOLS + 1
BEFORE = 4
"""How many symbols stand before the marked one."""

DISTANCES = (2, 4, 8, 16, 32, 64)
STEPS = 400
BATCH = 64
LEARNING_RATE = 0.005
LONGEST_GRADIENT = 1.0
TESTS = 1024


def sequences(
    count: int, distance: int, generator: torch.Generator
) -> tuple[Float[Tensor, "count positions features"], Int[Tensor, " count"]]:
    """Return sequences, and the symbol that is marked in each.

    Args:
        count: How many.
        distance: How many steps before the last position the marked one lies.
        generator: Where the symbols come from.

    Example:
        >>> x, answers = sequences(5, 3, torch.Generator().manual_seed(0))
        >>> bool((x[:, -4, :-1].argmax(-1) == answers).all()), x[0, :, -1].tolist()
        (True, [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    """
    symbols = torch.randint(SYMBOLS, (count, BEFORE + distance + 1), generator=generator)
    marks = torch.zeros(*symbols.shape, 1)
    marks[:, BEFORE] = 1
    x = torch.cat([nn.functional.one_hot(symbols, SYMBOLS).float(), marks], -1)
    return x, symbols[:, BEFORE]


def accuracy(name: str, distance: int, seed: int, *, steps: int = STEPS) -> float:
    """Return how often a network answers rightly after training at one distance.

    Args:
        name: One of `MAKERS`.
        distance: How many steps back the answer lies.
        seed: Of its first parameters and of the sequences.
        steps: How many batches it learns from.
    """
    generator = torch.Generator().manual_seed(1000 * seed + distance)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Answering(name, FEATURES, width_for(name, FEATURES, SYMBOLS), SYMBOLS)
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    for _ in range(steps):
        x, answers = sequences(BATCH, distance, generator)
        loss = nn.functional.cross_entropy(network(x), answers)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), LONGEST_GRADIENT)
        optimizer.step()
    with torch.no_grad():
        x, answers = sequences(TESTS, distance, generator)
        return float((network(x).argmax(-1) == answers).float().mean())


def measure_recall(
    seeds: int,
    tell: Callable[[str], None],
    *,
    distances: tuple[int, ...] = DISTANCES,
    steps: int = STEPS,
) -> Curves:
    """Return the accuracy of each network over the distance of the answer."""
    lines: dict[str, list[list[float]]] = {}
    sizes = {}
    for name in MAKERS:
        lines[name] = []
        for distance in distances:
            lines[name].append(
                [accuracy(name, distance, seed, steps=steps) for seed in range(seeds)]
            )
            tell(f"recall: {name}, {distance} steps back: {max(lines[name][-1]):.0%} at best")
        width = width_for(name, FEATURES, SYMBOLS)
        sizes[name] = {
            "parameters": size_of(Answering(name, FEATURES, width, SYMBOLS)),
            "width": width,
        }
    facts = {
        "sizes": sizes,
        "chance": 1 / SYMBOLS,
        "batches": steps,
        "batch": BATCH,
        "learning_rate": LEARNING_RATE,
        "longest_gradient": LONGEST_GRADIENT,
        "tests": TESTS,
    }
    return Curves(distances, lines, facts)
