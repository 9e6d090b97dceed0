"""Learned projections for the self-attention that links voices: W_Q, W_K and W_V, one matrix.

It is the identity plus a matrix of low rank, and begins as the identity. So what is not learned
stays what the embedding model says, and a few speakers do not suffice to spoil it. Learned apart,
the three fit the voices that they learn from better and other voices worse.
"""

import os
import tempfile
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from heedmap.errors import ArgumentError, InputError, ShapeError

FEATURES = 192
RANK = 16
FORM = "heedmap hear projections 1"
"""What a file of projections says that it is; another form is refused."""


class Projections(nn.Module):
    """Turns embeddings of voices into what is query, key and value at once.

    Args:
        features: Of an embedding.
        rank: Of the matrix that is added to the identity.

    Raises:
        ArgumentError: for a rank that is not from 1 to `features`.

    Example:
        >>> projections = Projections(4, rank=2)
        >>> bool((projections(torch.eye(4)) == torch.eye(4)).all())  # before anything is learned
        True
    """

    def __init__(self, features: int = FEATURES, rank: int = RANK) -> None:
        """Make the identity: x + x · A · B, with A at random and B at 0."""
        super().__init__()
        if not 1 <= rank <= features:
            raise ArgumentError(f"rank must be from 1 to the {features} features; got {rank}.")
        self.features, self.rank = features, rank
        self.down = nn.Parameter(torch.randn(features, rank) / features**0.5)
        self.up = nn.Parameter(torch.zeros(rank, features))

    def forward(self, embeddings: Float[Tensor, "voices features"]) -> Float[Tensor, "voices f"]:
        """Return the projected embeddings, each of length 1.

        Raises:
            ShapeError: for embeddings of another width.

        Cost: O(voices · features · rank).
        """
        if embeddings.shape[-1] != self.features:
            raise ShapeError(
                f"embeddings must have the {self.features} features that these projections were "
                f"made for; got {embeddings.shape[-1]}."
            )
        return normalize(embeddings + embeddings @ self.down @ self.up, dim=-1)

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
        # What torch raises for a file of another kind has no class in common.
        except Exception as error:
            raise _unusable(path) from error
        if not isinstance(held, dict) or held.get("form") != FORM:
            raise _unusable(path)
        try:
            made = cls(held["features"], held["rank"])
            made.load_state_dict(held["state"])
        except (KeyError, TypeError, RuntimeError, ArgumentError) as error:
            raise _unusable(path) from error
        if not bool((made.down @ made.up).isfinite().all()):
            raise _unusable(path)
        return made.requires_grad_(False)


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
