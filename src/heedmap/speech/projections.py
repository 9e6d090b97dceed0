"""Learned projections for the self-attention that links voices: W_Q, W_K and W_V.

Each is the identity plus a matrix of low rank, and begins as the identity. So what is not learned
stays what the embedding model says, and a few speakers do not suffice to spoil it.
"""

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from heedmap.errors import ArgumentError, InputError, ShapeError

FEATURES = 192
RANK = 16
FORM = "heedmap hear projections 1"
"""What a file of projections says that it is; another form is refused."""


class Projected(NamedTuple):
    """What self-attention takes, each row of unit length."""

    query: Float[Tensor, "voices features"]
    key: Float[Tensor, "voices features"]
    value: Float[Tensor, "voices features"]


class Projections(nn.Module):
    """Turns embeddings of voices into query, key and value.

    Args:
        features: Of an embedding.
        rank: Of the matrices that are added to the identity.

    Raises:
        ArgumentError: for a rank that is not from 1 to `features`.

    Example:
        >>> projections = Projections(4, rank=2)
        >>> units = torch.eye(4)
        >>> bool((projections(units).query == units).all())  # before anything is learned
        True
    """

    def __init__(self, features: int = FEATURES, rank: int = RANK) -> None:
        """Make the identity."""
        super().__init__()
        if not 1 <= rank <= features:
            raise ArgumentError(f"rank must be from 1 to the {features} features; got {rank}.")
        self.features, self.rank = features, rank
        self.query = _IdentityAndMore(features, rank)
        self.key = _IdentityAndMore(features, rank)
        self.value = _IdentityAndMore(features, rank)

    def forward(self, embeddings: Float[Tensor, "voices features"]) -> Projected:
        """Return query, key and value of these embeddings.

        Raises:
            ShapeError: for embeddings of another width.

        Cost: O(voices · features · rank).
        """
        if embeddings.shape[-1] != self.features:
            raise ShapeError(
                f"embeddings must have the {self.features} features that these projections were "
                f"made for; got {embeddings.shape[-1]}."
            )
        parts = (self.query, self.key, self.value)
        return Projected(*(normalize(part(embeddings), dim=-1) for part in parts))

    def save(self, path: Path) -> None:
        """Write them to a file, which is replaced only when all is written."""
        write_atomically(
            {
                "form": FORM,
                "features": self.features,
                "rank": self.rank,
                "state": self.state_dict(),
            },
            path,
        )

    @classmethod
    def load(cls, path: Path) -> "Projections":
        """Return the projections that a file holds, not to be trained further.

        Raises:
            InputError: for a file that is not there or holds no projections.

        Cost: reads the file, a few hundred kilobytes; nothing in it is executed.
        """
        try:
            held = torch.load(path, map_location="cpu", weights_only=True)
        except OSError as error:
            raise InputError(
                f"projections must be a file that can be read; got {path}: {error.strerror}."
            ) from None
        except Exception as error:
            raise _unusable(path) from error
        if not isinstance(held, dict) or held.get("form") != FORM:
            raise _unusable(path)
        try:
            made = cls(held["features"], held["rank"])
            made.load_state_dict(held["state"])
        except (KeyError, TypeError, RuntimeError, ArgumentError) as error:
            raise _unusable(path) from error
        return made.requires_grad_(False)


class _IdentityAndMore(nn.Module):
    """x + x · A · B, with A at random and B at 0 in the beginning."""

    def __init__(self, features: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(features, rank) / features**0.5)
        self.up = nn.Parameter(torch.zeros(rank, features))

    def forward(self, x: Tensor) -> Tensor:
        return x + x @ self.down @ self.up


def write_atomically(held: object, path: Path) -> None:
    """Write an object with torch.save, so that the file is the old one or the whole new one.

    Raises:
        InputError: if it cannot be written.
    """
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".heedmap-", delete=False) as file:
            temporary = Path(file.name)
            torch.save(held, file)
            file.flush()
            os.fsync(file.fileno())
        # What is temporary lets nobody else in; an ordinary file is wanted in the end.
        temporary.chmod(0o644)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise InputError(
            f"{path} must be a place that can be written to; got {error.strerror}."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _unusable(path: Path) -> InputError:
    return InputError(
        f"projections must be a file that heedmap train hear wrote; got {path}, which is none."
    )
