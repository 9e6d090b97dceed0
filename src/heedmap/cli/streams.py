"""What is printed where, and the numbers with which a command ends."""

import os
import sys
from contextlib import suppress

from heedmap.errors import UnsupportedError

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130


def require_output() -> None:
    """Refuse to work for results that nobody could read.

    Raises:
        UnsupportedError: if standard output was closed before the program began.
    """
    # Python has None for such a stream.
    if sys.stdout is None:
        raise UnsupportedError("standard output must be open; got a closed one.")


def print_results(words: str) -> None:
    """Write the results to standard output.

    Raises:
        UnsupportedError: if it cannot take them; whoever merely stops reading is no error.
    """
    try:
        sys.stdout.write(words)
        sys.stdout.flush()
    except OSError as error:
        # Python must not try to write the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise UnsupportedError(
                f"standard output must take the results; got “{error.strerror}”. Write them "
                "elsewhere."
            ) from error


def tell(line: str) -> None:
    """Write a line to standard error, where somebody reads it; else the work goes on."""
    # Without the question, print would take standard output for a standard error that is closed.
    if sys.stderr is not None:
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)
