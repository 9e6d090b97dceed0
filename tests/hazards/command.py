"""The command line, called in this process."""

import signal
from collections.abc import Callable
from typing import NamedTuple

import pytest

from heedmap.cli import main


class Done(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


Run = Callable[..., Done]


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function from arguments to how the command ended."""

    def call(*arguments: str) -> Done:
        # What main sets for its process must not outlive the test.
        handler = signal.getsignal(signal.SIGTERM)
        capsys.readouterr()
        try:
            status = main([*arguments, *(["--force"] if "look" in arguments else [])])
        finally:
            signal.signal(signal.SIGTERM, handler)
        return Done(status, *capsys.readouterr())

    return call
