"""Where numbers are computed as promised, whatever the caller's block says."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NoReturn, ParamSpec, TypeVar

import torch
from torch._C import (
    _get_dispatch_mode,
    _get_fp32_precision_getter,
    _is_tracing,
    _set_fp32_precision_setter,
    _TorchDispatchModeKey,
)

from heedmap.errors import UnsupportedError

P = ParamSpec("P")
R = TypeVar("R")

_PROXY = _TorchDispatchModeKey.PROXY
"""The mode in which torch.fx records every operation of PyTorch, and would miss ours."""

AS_IT_IS = nullcontext()

_PRODUCTS = ("cuda", "matmul"), ("mkldnn", "matmul")
"""The settings that say how float32 is multiplied, on a GPU and on a CPU."""

_COARSE = ("tf32", "bf16")


def exactly() -> AbstractContextManager[object]:
    """Return a block in which products are rounded neither by autocast nor to TF32 or bfloat16.

    The latter is what ``torch.set_float32_matmul_precision`` asks for. Its setting is one for all
    threads, and is put back behind the block.

    >>> with torch.autocast("cpu", dtype=torch.bfloat16), exactly():
    ...     (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
    torch.float32
    """
    cast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    # Written out, since this is asked before every small step.
    if not cast and (
        _get_fp32_precision_getter("cuda", "matmul") not in _COARSE
        and _get_fp32_precision_getter("mkldnn", "matmul") not in _COARSE
    ):
        return AS_IT_IS
    stack = ExitStack()
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
    stack.enter_context(_fine_products())
    return stack


@contextmanager
def _fine_products() -> Iterator[None]:
    """Have float32 multiplied as it is, and put back what was said in whichever of two ways."""
    try:
        asked = torch.get_float32_matmul_precision()
    except RuntimeError:
        # It was said for single backends, and PyTorch will not have the two ways mixed.
        settings = [(by, _get_fp32_precision_getter(*by)) for by in _PRODUCTS]
        put_back = functools.partial(_set_each, settings)
        _set_each([(by, "ieee") for by in _PRODUCTS])
    else:
        put_back = functools.partial(torch.set_float32_matmul_precision, asked)
        torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        put_back()


def _set_each(settings: list[tuple[tuple[str, str], str]]) -> None:
    for by, precision in settings:
        _set_fp32_precision_setter(*by, precision)


def never_compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that torch.compile calls as it is written, between its graphs.

    What it does depends on what stands in the tensors, which a graph may not ask.

    >>> never_compiled(len)("abc")
    3
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # To disable it beforehand would load the compiler, a second, for everybody.
        if torch.compiler.is_compiling():
            if torch.compiler.is_exporting():
                _refuse_record()
            as_written: Any = torch.compiler.disable(function)
            return as_written(*args, **kwargs)
        if _is_tracing() or _get_dispatch_mode(_PROXY) is not None:
            _refuse_record()
        return function(*args, **kwargs)

    return call


def _refuse_record() -> NoReturn:
    """Refuse to become a part of a graph that is to run without Python."""
    raise UnsupportedError(
        "attention and maps must be run by Python; got an export or a trace of the graph. "
        "Export the model with torch.nn.functional.scaled_dot_product_attention in their place."
    )
