"""Shapes and types checked at each call into heedmap: ``python -m pytest -p tests.checked``.

jaxtyping's import hook decorates every function and dataclass. Its own decorator binds arguments to
the signature, and checks them once before a call and again with what it returned. Ours, which takes
its place, lets beartype check each once, in half of the time.
"""

import inspect
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

# An int is a float here, as for pyright.
check_types = beartype(conf=BeartypeConf(is_pep484_tower=True))

_jaxtyped: Any = jaxtyping.jaxtyped


def checked(decorated: Any = None, *, typechecker: Callable[[Any], Any] = check_types) -> Any:
    """Return a function that checks what it is given and returns, with the sizes of one call."""
    if decorated is None:
        return partial(checked, typechecker=typechecker)
    if not inspect.isfunction(decorated) or _has_its_own_time(decorated):
        return _jaxtyped(decorated, typechecker=typechecker)
    function = typechecker(decorated)

    @wraps(decorated)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return decorated(*args, **kwargs)
        with _jaxtyped("context"):
            return function(*args, **kwargs)

    return call


def _has_its_own_time(function: Callable[..., Any]) -> bool:
    """Return whether it runs later than it is called, or names types that are not known by now."""
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        return True
    try:
        typing.get_type_hints(function)
    except (NameError, AttributeError):
        return True
    return False


def check_heedmap() -> None:
    """Check all of heedmap that is imported from now on."""
    jaxtyping.jaxtyped = checked
    jaxtyping.install_import_hook("heedmap", "tests.checked.check_types")


def pytest_load_initial_conftests() -> None:
    """Check in the tests that have this module as a plugin."""
    check_heedmap()


@contextmanager
def unchecked() -> Iterator[None]:
    """Leave shapes and types unchecked in a block: thousands of calls like some that are checked.

    The checks would take half of their time.
    """
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
