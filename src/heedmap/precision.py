"""Where numbers are computed as promised, whatever the caller's block says."""

from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch

_AS_IT_IS = nullcontext()


def exactly() -> AbstractContextManager[object]:
    """Return a block in which autocast rounds no product.

    >>> with torch.autocast("cpu", dtype=torch.bfloat16), exactly():
    ...     (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
    torch.float32
    """
    devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    if not devices:
        return _AS_IT_IS
    stack = ExitStack()
    for device in devices:
        stack.enter_context(torch.autocast(device, enabled=False))
    return stack
