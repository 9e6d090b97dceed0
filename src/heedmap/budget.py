"""How large a dense matrix may become when somebody asks for one.

An operation that has no lazy form makes the dense matrix, as any PyTorch code would expect, but
only within a budget: 256 MiB, unless the variable HEEDMAP_DENSE_BYTES or `dense_budget` says
otherwise.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Real

from heedmap.errors import ArgumentError, BudgetError

DEFAULT_BYTES = 256 << 20

_allowed: ContextVar[int | None] = ContextVar("heedmap_dense_bytes", default=None)


@contextmanager
def dense_budget(max_bytes: int) -> Iterator[None]:
    """Let dense matrices take up to `max_bytes` within the block; 0 forbids them.

    Raises:
        ArgumentError: if `max_bytes` is no number from 0 on.

    Example:
        >>> with dense_budget(0):
        ...     allowed_bytes()
        0
    """
    require_bytes(max_bytes)
    token = _allowed.set(max_bytes)
    try:
        yield
    finally:
        _allowed.reset(token)


def require_bytes(max_bytes: int) -> None:
    """Refuse what says no number of bytes.

    Raises:
        ArgumentError: for what is no number from 0 on.
    """
    if not (isinstance(max_bytes, Real) and max_bytes >= 0):
        raise ArgumentError(f"max_bytes must be a number of bytes from 0 on; got {max_bytes!r}.")


def allowed_bytes() -> int:
    """Return how many bytes a dense matrix may take here."""
    if (allowed := _allowed.get()) is not None:
        return allowed
    given = os.environ.get("HEEDMAP_DENSE_BYTES", "")
    if not given:
        return DEFAULT_BYTES
    if not given.isdecimal():
        raise ArgumentError(f"HEEDMAP_DENSE_BYTES must be a number of bytes; got {given!r}.")
    return int(given)


def require(needed_bytes: int, shape: tuple[int, ...], wish: str, max_bytes: int | None) -> None:
    """Refuse a dense matrix that is larger than `max_bytes`, or than the budget when None.

    Raises:
        BudgetError: saying what it would take and what would do instead.
    """
    allowed = allowed_bytes() if max_bytes is None else max_bytes
    if needed_bytes > allowed:
        raise BudgetError(
            f"{wish} must fit the dense budget of {in_words(allowed)}; a dense map of "
            f"{list(shape)} would take {in_words(needed_bytes)}. Select rows or a block first, or "
            "use what needs no dense map (sum, mean, amax, topk, entropy, pool, diagonal, @), or "
            f"raise the budget: with heedmap.dense_budget({needed_bytes})."
        )


def in_words(size_bytes: int) -> str:
    """Return a number of bytes as people write it.

    >>> in_words(256 << 20)
    '256 MiB'
    """
    amount, unit = float(size_bytes), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if amount >= 10 or amount.is_integer() else f"{amount:.1f} {unit}"
