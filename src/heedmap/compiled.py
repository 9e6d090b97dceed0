"""Finding the compiled kernels: which of them this machine can run, and whether they are there.

``HEEDMAP_KERNEL`` chooses: ``native`` or nothing for the best one, ``torch`` for none, or the name
of an instruction set such as ``x86-64-v3``.
"""

import ctypes
import functools
import os
import platform
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.nn import Parameter

from heedmap.errors import ArgumentError

FOLDER = Path(__file__).parent / "kernels" / "native" / "built"
SUFFIX = ".dll" if sys.platform == "win32" else ".so"

# By what torch says of the CPU: the sets that it can run, best first.
_SETS = {
    "AVX512": ("x86-64-v4", "x86-64-v3"),
    "AVX2": ("x86-64-v3",),
    "NO AVX": (),
    "DEFAULT": ("armv8-a",) if platform.machine() in ("aarch64", "arm64") else (),
}

FUNCTIONS = {
    "heedmap_forward": [ctypes.c_void_p] * 3,
    "heedmap_statistics": [*[ctypes.c_void_p] * 3, ctypes.c_int],
    "heedmap_backward": [ctypes.c_void_p] * 2,
    "heedmap_tame": [ctypes.c_void_p],
}
"""What the library can do, and what it is given."""


def runnable() -> tuple[str, ...]:
    """Return the instruction sets that this machine can run, best first."""
    return _SETS.get(torch.backends.cpu.get_cpu_capability(), ())


def wanted() -> tuple[str, ...]:
    """Return the instruction sets that may be used, best first.

    Raises:
        ArgumentError: if ``HEEDMAP_KERNEL`` is none that this machine can run.
    """
    asked = os.environ.get("HEEDMAP_KERNEL", "")
    if asked in ("", "native"):
        return runnable()
    if asked == "torch":
        return ()
    if asked not in runnable():
        sets = ", ".join(("native", "torch", *runnable()))
        raise ArgumentError(f"HEEDMAP_KERNEL must be one of {sets} here; got {asked!r}.")
    return (asked,)


@functools.cache
def load() -> tuple[str, ctypes.CDLL] | None:
    """Return the instruction set of the best kernel that there is, and its library."""
    for name in wanted():
        path = FOLDER / f"attend-{name}{SUFFIX}"
        if path.exists():
            # torch has been imported: its OpenMP is the one that this finds.
            found = ctypes.CDLL(str(path))
            for function, kinds in FUNCTIONS.items():
                getattr(found, function).argtypes = kinds
            return name, found
    return None


FEW_NUMBERS = 1 << 14
"""So many numbers one thread reads as fast as PyTorch's threads do."""


def are_tame(tensors: Sequence[Tensor]) -> bool | None:
    """Return whether no norm of up to three tensors is 1e18, infinite or NaN; None for not known.

    It is known of few numbers on a CPU, in a quarter of the time that PyTorch takes to ask thrice.
    """
    # A compiler would walk into what is cached, and warn.
    if torch.compiler.is_compiling() or _are_functorch_transforms_active():
        return None
    if (ask := _tame()) is None:
        return None
    given = []
    for tensor in tensors:
        if not (
            type(tensor) in _PLAIN
            and tensor.dtype is _FLOAT32
            and tensor.is_cpu
            and tensor.is_contiguous()
            and (count := tensor.numel()) <= FEW_NUMBERS
        ):
            return None
        given += tensor.data_ptr(), count
    return bool(ask(_THREE.pack(*given, *_NOTHING[len(given) :])))


_PLAIN, _FLOAT32, _NOTHING = (Tensor, Parameter), torch.float32, (0,) * 6
_THREE = struct.Struct("@PqPqPq")


@functools.cache
def _tame() -> Callable[..., int] | None:
    found = load()
    return None if found is None else found[1].heedmap_tame
