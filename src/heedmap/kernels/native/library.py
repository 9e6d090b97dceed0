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
from pathlib import Path

import torch

from heedmap.errors import ArgumentError

FOLDER = Path(__file__).parent / "built"
SUFFIX = ".dll" if sys.platform == "win32" else ".so"

# By what torch says of the CPU: the sets that it can run, best first.
_SETS = {
    "AVX512": ("x86-64-v4", "x86-64-v3"),
    "AVX2": ("x86-64-v3",),
    "NO AVX": (),
    "DEFAULT": ("armv8-a",) if platform.machine() in ("aarch64", "arm64") else (),
}


PROBLEM = struct.Struct("@8P 3q3q3q 2qq4q4q 7q fi")
"""What a kernel computes; see ``rows.hpp``, which has the same fields.

Packed at once, which takes a fifth of the time that a field after the other does.
"""


class Statistics(ctypes.Structure):
    """Where statistics go; see ``gathered.hpp``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("log_normalizer", "received", "entropy", "pooled")),
        *((name, ctypes.c_void_p) for name in ("largest", "row_bins", "column_bins")),
        *((name, ctypes.c_void_p) for name in ("top_weights", "top_keys")),
        *((name, ctypes.c_int64) for name in ("pooled_rows", "pooled_columns", "top")),
        *((name, ctypes.c_int64) for name in ("first_matrix", "matrices")),
    )


class Gradients(ctypes.Structure):
    """What a backward pass is given, and where its results go; see ``backward.cpp``."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("log_normalizer", "upward", "slope", "query", "key", "value")
    )


FUNCTIONS = {
    "heedmap_forward": [ctypes.c_void_p] * 3,
    "heedmap_statistics": [*[ctypes.c_void_p] * 3, ctypes.c_int],
    "heedmap_backward": [ctypes.c_void_p] * 2,
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
