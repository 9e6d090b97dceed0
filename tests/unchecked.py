"""Leaving out what is checked at run time."""

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping


@contextmanager
def unchecked() -> Iterator[None]:
    """Leave shapes and types unchecked in a block: thousands of calls like some that are checked.

    The checks would take three quarters of their time.
    """
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
