"""Derivatives against finite differences."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .checked import unchecked

Outputs = Tensor | Sequence[Tensor]


def require_first_derivatives(function: Callable[..., Outputs], leaves: Sequence[Tensor]) -> None:
    """Compare the gradients of all that a function returns with finite differences.

    Shapes and types are checked in one call of it, forward and backward; in the thousands like it
    that finite differences make, the checks would take half of the time.
    """
    _gradients(_total(function(*leaves)), leaves, create_graph=False)
    with unchecked():
        assert torch.autograd.gradcheck(function, tuple(leaves))


def require_second_derivatives(function: Callable[..., Outputs], leaves: Sequence[Tensor]) -> None:
    """Compare the gradients of its gradients likewise."""
    gradients = _gradients(_total(function(*leaves)), leaves, create_graph=True)
    if (total := _total(gradients)).requires_grad:
        _gradients(total, leaves, create_graph=False)
    with unchecked():
        assert torch.autograd.gradgradcheck(function, tuple(leaves))


def _total(outputs: Outputs) -> Tensor:
    parts = [outputs] if isinstance(outputs, Tensor) else outputs
    return torch.stack([part.square().sum() for part in parts]).sum()


def _gradients(total: Tensor, leaves: Sequence[Tensor], *, create_graph: bool) -> list[Tensor]:
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = torch.autograd.grad(total, wanted, create_graph=create_graph, allow_unused=True)
    return [gradient for gradient in found if gradient is not None]
