"""What every tensor that is given must be: one of PyTorch, with numbers, and whole."""

import sys

from torch import Tensor
from torch._C._functorch import (
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    is_legacy_batchedtensor,
)

from heedmap.errors import DTypeError, UnsupportedError


def require_numbers(name: str, given: Tensor) -> None:
    """Refuse what is no tensor, or a sample of one, or one that has a shape and no numbers.

    Raises:
        DTypeError: for what is no tensor.
        UnsupportedError: under ``torch.func.vmap``, and for a tensor without numbers.
    """
    if type(given) is Tensor and not given.is_meta and not is_functorch_wrapped_tensor(given):
        # What nearly all are, found in a third of the time.
        return
    require_tensor(name, given)
    refuse_empty(name, given)


def require_tensor(name: str, given: object) -> None:
    """Refuse what is no tensor, or a sample of one. It may have no numbers: see `refuse_empty`.

    Raises:
        DTypeError: for what is no tensor.
        UnsupportedError: under ``torch.func.vmap``.
    """
    if not isinstance(given, Tensor):
        raise DTypeError(f"{name} must be a torch.Tensor; got {type(given).__name__}.")
    if is_functorch_wrapped_tensor(given):
        refuse_mapped(name, given)


def refuse_mapped(name: str, tensor: Tensor) -> None:
    """Refuse a tensor that stands for each sample of a batch, by vmap or for batched gradients.

    Raises:
        UnsupportedError: for such a tensor, at whatever depth of torch.func's transforms.
    """
    while is_functorch_wrapped_tensor(tensor) or is_legacy_batchedtensor(tensor):
        if is_batchedtensor(tensor) or is_legacy_batchedtensor(tensor):
            raise UnsupportedError(
                f"{name} must be a whole tensor; got a sample of it, by vmap. Give the whole batch."
            )
        tensor = get_unwrapped(tensor)


def refuse_empty(name: str, tensor: Tensor) -> None:
    """Refuse a tensor that has a shape and no numbers.

    Raises:
        UnsupportedError: for one of the meta device, and for one of a FakeTensorMode.
    """
    if type(tensor) is Tensor and not tensor.is_meta:
        return
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    if tensor.is_meta or (fake is not None and isinstance(tensor, fake.FakeTensor)):
        raise UnsupportedError(
            f"{name} must have numbers; got a tensor without any, on the meta device or under "
            "FakeTensorMode. The output would have the shape of query, as wide as value."
        )
