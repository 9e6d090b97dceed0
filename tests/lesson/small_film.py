"""A small film whose shots return."""

from pathlib import Path

import torch
from torch import Tensor

from heedmap.lesson.cut_film import Piece, write_film

SHOTS = {"A": (200, 60, 40), "B": (40, 60, 200), "C": (60, 190, 60)}
ORDER: tuple[Piece, ...] = tuple(
    (name, range(10 * number, 10 * number + 10)) for number, name in enumerate("ABACBA")
)


def small_film(path: Path) -> Path:
    """Return a film of noisy pictures, whose left half has the colour of their shot."""
    noise = torch.Generator().manual_seed(0)

    def picture(name: str) -> Tensor:
        made = torch.randint(120, 140, (48, 64, 3), generator=noise)
        made[:, :32] += torch.tensor(SHOTS[name]) - 120
        return made.clamp(0, 255).byte()

    write_film(path, (picture(name) for name, frames in ORDER for _ in frames))
    return path
