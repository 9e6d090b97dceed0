"""What the division by √d does to the weights, to the gradients, and to the loss."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedmap.lesson.claims.curves import Curves, by_point
from heedmap.lesson.claims.recall import BATCH, FEATURES, SYMBOLS, sequences

WIDTHS = (4, 16, 64, 256, 1024)
LOOKED_AT = 64
"""How many positions there are where nothing is trained."""

TRAINED_WIDTH = 64
DISTANCE = 16
STEPS = 200
EVERY = 10
LEARNING_RATE = 0.001


class OneLook(nn.Module):
    """Self-attention over normalised inputs, as transformers have it, asked at the last position.

    Its projections begin as in “Attention is all you need” (Glorot and Bengio), so that queries and
    keys have about unit variance, which is what √d reckons with.
    """

    def __init__(self, width: int, scaled: bool) -> None:
        """Make a layer of this width that divides by √width, or does not."""
        super().__init__()
        self.divisor = math.sqrt(width) if scaled else 1.0
        self.embed = nn.Linear(FEATURES, width)
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.answer = nn.Linear(width, SYMBOLS)
        for projection in (self.q, self.k, self.v):
            nn.init.xavier_uniform_(projection.weight)

    def forward(
        self, x: Float[Tensor, "batch positions features"]
    ) -> tuple[Float[Tensor, "batch answers"], Float[Tensor, "batch positions"]]:
        """Return a score of each answer, and the weights of the last position."""
        seen = self.norm(self.embed(x))
        scores = torch.einsum("bd,bkd->bk", self.q(seen[:, -1]), self.k(seen)) / self.divisor
        weights = scores.softmax(-1)
        read = torch.einsum("bk,bkd->bd", weights, self.v(seen))
        return self.answer(read), weights


@dataclass
class Learned:
    """What one training went through.

    Attributes:
        loss: The loss, every so many steps.
        gradient: The length of the gradient of W_Q and W_K.
        sharpness: The largest weight of the last position, on average.
    """

    loss: list[float] = field(default_factory=list)
    gradient: list[float] = field(default_factory=list)
    sharpness: list[float] = field(default_factory=list)


def train(scaled: bool, seed: int, *, width: int = TRAINED_WIDTH, steps: int = STEPS) -> Learned:
    """Return how a layer learns to name the symbol that lies `DISTANCE` steps back.

    Args:
        scaled: Whether it divides by √d.
        seed: Of its first parameters and of the sequences.
        width: Its d.
        steps: How many batches it learns from.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = OneLook(width, scaled)
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    learned = Learned()
    for step in range(steps + 1):
        x, answers = sequences(BATCH, DISTANCE, generator)
        found, weights = network(x)
        loss = nn.functional.cross_entropy(found, answers)
        optimizer.zero_grad()
        loss.backward()
        if step % EVERY == 0:
            of_scores = [network.q.weight.grad, network.k.weight.grad]
            assert all(part is not None for part in of_scores)
            learned.loss.append(float(loss.detach()))
            learned.gradient.append(
                math.hypot(*(float(p.norm()) for p in of_scores if p is not None))
            )
            learned.sharpness.append(float(weights.detach().amax(-1).mean()))
        optimizer.step()
    return learned


def sharpness(width: int, scaled: bool, seed: int) -> float:
    """Return the largest weight of a row, on average, for random queries and keys of unit variance.

    >>> sharpness(1024, False, 0) > 0.9 > 0.2 > sharpness(1024, True, 0)
    True
    """
    generator = torch.Generator().manual_seed(seed)
    query, key = torch.randn(2, LOOKED_AT, width, generator=generator)
    scores = query @ key.T / (math.sqrt(width) if scaled else 1.0)
    return float(scores.softmax(-1).amax(-1).mean())


KINDS = {"scaled": True, "unscaled": False}


def measure_sharpness(seeds: int) -> Curves:
    """Return how sharp weights are over d, with √d and without."""
    lines = {
        name: [[sharpness(width, scaled, seed) for seed in range(seeds)] for width in WIDTHS]
        for name, scaled in KINDS.items()
    }
    return Curves(WIDTHS, lines, {"positions": LOOKED_AT})


def measure_scale(
    seeds: int,
    tell: Callable[[str], None],
    *,
    width: int = TRAINED_WIDTH,
    steps: int = STEPS,
) -> dict[str, Curves]:
    """Return loss, gradient and sharpness while learning, with √d and without."""
    tell("scale: training with √d and without")
    runs = {
        name: [train(scaled, seed, width=width, steps=steps) for seed in range(seeds)]
        for name, scaled in KINDS.items()
    }
    x = tuple(float(step) for step in range(0, steps + 1, EVERY))
    facts = {"width": width, "learning_rate": LEARNING_RATE, "batch": BATCH, "distance": DISTANCE}
    return {
        what: Curves(
            x,
            {name: by_point([getattr(run, what) for run in some]) for name, some in runs.items()},
            facts,
        )
        for what in ("loss", "gradient", "sharpness")
    }
