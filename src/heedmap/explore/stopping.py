"""How a computation learns that nobody wants its answer any more.

Whoever begins one says how to find out; whatever computes asks between blocks, however deep it
lies. Each thread has its own answer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Stop = Callable[[], bool]
"""Returns True once the answer is no longer wanted."""


class Stopped(Exception):
    """A computation was given up because nobody wants its answer any more."""


def never() -> bool:
    """Say that an answer is still wanted."""
    return False


_stop: ContextVar[Stop] = ContextVar("heedmap_explore_stop", default=never)


@contextmanager
def wanted_until(stop: Stop) -> Iterator[None]:
    """Let `require_wanted` ask `stop` within the block."""
    token = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(token)


def require_wanted() -> None:
    """Give up if the answer is not wanted any more.

    Raises:
        Stopped: if so.

    Example:
        >>> with wanted_until(lambda: True):
        ...     require_wanted()
        Traceback (most recent call last):
        heedmap.explore.stopping.Stopped
    """
    if _stop.get()():
        raise Stopped
