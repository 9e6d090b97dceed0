"""Where numbers are computed as promised, whatever the caller's block says."""

from contextlib import AbstractContextManager, ExitStack

import torch


def exactly() -> AbstractContextManager[object]:
    """Return a block in which autocast rounds no product.

    >>> with torch.autocast("cpu", dtype=torch.bfloat16), exactly():
    ...     (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
    torch.float32
    """
    stack = ExitStack()
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
    return stack
