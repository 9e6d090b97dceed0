"""The command line as a whole: its commands, and how each of them ends."""

import argparse
import io
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from heedmap.cli.doctor import add_doctor
from heedmap.cli.explore import add_explore
from heedmap.cli.hear import add_hear
from heedmap.cli.lesson import add_lesson
from heedmap.cli.look import EXAMPLES, add_look
from heedmap.cli.score import add_score
from heedmap.cli.streams import DONE, FAILED, INTERRUPTED, WRONG_INPUT, require_output, tell
from heedmap.cli.train import add_train
from heedmap.errors import ArgumentError, HeedmapError


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status of the command line, after doing what it says.

    Args:
        arguments: The words after the name of the program; those of this process when None.
    """
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    # Interrupted or stopped, what was begun is cleared away on the way out.
    signal.signal(signal.SIGTERM, _interrupt)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that a terminal cannot show must not end the program.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        require_output()
        return options.command(options)
    except KeyboardInterrupt:
        tell("heedmap: interrupted.")
        return INTERRUPTED
    except HeedmapError as error:
        if options.debug:
            raise
        tell(f"heedmap: {_one_line(error)}")
        return WRONG_INPUT if isinstance(error, ArgumentError) else FAILED
    # Whatever else comes is a fault of ours, of no class that could be named: people get one line
    # and status 1, as for every failure, and --debug raises it.
    except Exception as error:
        if options.debug:
            raise
        tell(
            f"heedmap: {type(error).__name__}: {_one_line(error).rstrip('.')}. "
            "This should not happen; add --debug to see where."
        )
        return FAILED


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_INPUT, f"heedmap: {message}. Run: {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="heedmap",
        description="See what attention looks at, in text, sound and film.",
        epilog=f"{EXAMPLES}  heedmap hear interview.wav --words\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="print the version and stop")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_look(commands)
    add_explore(commands)
    add_hear(commands)
    add_score(commands)
    add_train(commands)
    add_lesson(commands)
    add_doctor(commands)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        print(f"heedmap {version('heedmap')}")
        parser.exit(DONE)


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
