"""Weights out of a file of torch (``.pt``), read as numbers only, into a module of our own."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from heedmap.errors import ModelError

Module = TypeVar("Module", bound=nn.Module)

# What reading nonsense raises, here and where weights do not fit.
_DAMAGE = (OSError, EOFError, RuntimeError, LookupError, TypeError, AttributeError, ValueError)


def read_checkpoint(
    path: Path, module: Module, our_name: Callable[[str], str | None], *, part: str | None = None
) -> Module:
    """Return `module` with the weights of the file, in evaluation mode, needing no gradients.

    Nothing but tensors and plain containers is read: a file cannot run code.

    Args:
        path: The file.
        module: What takes the weights.
        our_name: Says what the module calls the weight that the file calls so; None leaves it out.
        part: Under which key of the file the weights lie, if not at its top.

    Raises:
        ModelError: if the file is damaged, or holds other weights than the module has.
    """
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
        wanted = module.state_dict()
        weights = {}
        for name, values in (held[part] if part else held).items():
            ours = our_name(name)
            if ours is not None:
                weights[ours] = values.view_as(wanted[ours])
        module.load_state_dict(weights)
    except (*_DAMAGE, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(
            f"{path} must hold the weights that heedmap was tested with; got “{reason}”. Delete "
            "its folder, so that it is fetched again."
        ) from error
    return module.eval().requires_grad_(False)
