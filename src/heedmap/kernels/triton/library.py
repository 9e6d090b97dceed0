"""Finding Triton, which is optional, and what is asked of it by the environment.

With ``TRITON_INTERPRET=1``, which is Triton's own variable, its kernels run without a GPU, by NumPy
and very slowly: so our tests run them. ``HEEDMAP_PRODUCTS=bfloat16`` rounds float32 numbers to
bfloat16 before they are multiplied, which is many times faster on a GPU, and no longer exact.
"""

import functools
import importlib.util
import os
from importlib.metadata import PackageNotFoundError, version

from heedmap.errors import ArgumentError

PRODUCTS = ("float32", "bfloat16")


@functools.cache
def is_there() -> bool:
    """Return whether Triton can be imported; it is not imported for that."""
    return importlib.util.find_spec("triton") is not None


def is_interpreted() -> bool:
    """Return whether Triton is to run its kernels without a GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def version_there() -> str | None:
    """Return the version of the Triton that is installed, None where there is none."""
    if not is_there():
        return None
    try:
        return version("triton")
    except PackageNotFoundError:  # builds of it for other GPUs have other names
        return "of unknown version"


def products() -> str:
    """Return the number type in which numbers of float32 are multiplied.

    Raises:
        ArgumentError: if ``HEEDMAP_PRODUCTS`` names none that there is.
    """
    asked = os.environ.get("HEEDMAP_PRODUCTS") or "float32"
    if asked not in PRODUCTS:
        raise ArgumentError(f"HEEDMAP_PRODUCTS must be float32 or bfloat16; got {asked!r}.")
    return asked
