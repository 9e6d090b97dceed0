"""``heedmap lesson``, and ``heedmap lesson measure``."""

import argparse
from typing import Any

from heedmap.cli.inputs import a_path
from heedmap.cli.streams import DONE, print_results, tell
from heedmap.errors import ArgumentError


def add_lesson(commands: Any) -> None:
    """Add ``lesson`` to the commands."""
    about = "open a lesson on self-attention in the browser, in Chinese or English"
    parser = commands.add_parser(
        "lesson",
        help=about,
        description=f"{about[0].upper()}{about[1:]}. It runs until Ctrl-C.",
    )
    parser.add_argument(
        "--language",
        choices=("zh", "en"),
        help="the language to begin with; default: that of the browser, else Chinese",
    )
    parser.add_argument(
        "--html",
        type=a_path,
        metavar="FILE",
        help="write the lesson as one file that needs neither heedmap nor a network, and stop",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there")
    parser.add_argument(
        "--port", type=int, metavar="N", help="the port to listen on; default: a free one"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser.set_defaults(command=_lesson)
    _add_measure(parser.add_subparsers(title="commands", metavar="[measure]"))


def _add_measure(commands: Any) -> None:
    about = "measure what the lesson claims, on this machine"
    parser = commands.add_parser(
        "measure",
        help=about,
        description=f"{about[0].upper()}{about[1:]}: pictures, a table and the numbers.",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=a_path,
        metavar="FOLDER",
        required=True,
        help="where the results go; the folder appears whole, at the end",
    )
    parser.add_argument("--force", action="store_true", help="replace earlier results")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser.set_defaults(command=_measure)


def _lesson(options: argparse.Namespace) -> int:
    if options.html is not None:
        return _write(options)
    if options.force:
        raise ArgumentError("--force must be given with --html; got it alone. Leave it out.")
    tell("Loading …")
    from heedmap.lesson.serving import serve_lesson

    def announce(url: str) -> None:
        print_results(f"{url}\n")
        tell("Ctrl-C ends it.")

    serve_lesson(
        language=options.language,
        port=options.port or 0,
        browser=not options.no_browser,
        announce=announce,
    )
    return DONE


def _write(options: argparse.Namespace) -> int:
    """Write the lesson as a file."""
    for name, given in (("port", options.port is not None), ("no-browser", options.no_browser)):
        if given:
            raise ArgumentError(f"--{name} must not be given with --html; leave it out.")
    from heedmap.lesson.offline import write_lesson

    write_lesson(options.html, language=options.language, force=options.force)
    print_results(f"{options.html}\n")
    return DONE


def _measure(options: argparse.Namespace) -> int:
    from heedmap.lesson.measuring import measure

    print_results(measure(options.output, force=options.force, progress=tell))
    return DONE
