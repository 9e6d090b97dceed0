"""The command line: ``heedmap look INPUT``, ``heedmap explore INPUT``, ``heedmap doctor``.

Results go to standard output, progress and errors to standard error. The status is 0 when done, 1
when something failed, 2 for wrong usage or input, 130 when interrupted. What takes long to import
is imported inside the commands, so that ``--help`` answers at once.
"""

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from heedmap.errors import ArgumentError, HeedmapError, InputError, UnsupportedError

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

EXAMPLES = """\
examples:
  heedmap look "to be or not to be" --query be#2
  heedmap look interview.wav --query 12.5s
  heedmap look interview.wav --words
  heedmap look holiday.mp4 -o pictures
  some-command | heedmap look -
  heedmap explore interview.wav
"""


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
        return options.command(options)
    except KeyboardInterrupt:
        _tell("heedmap: interrupted.")
        return INTERRUPTED
    except HeedmapError as error:
        if options.debug:
            raise
        _tell(f"heedmap: {_one_line(error)}")
        return WRONG_INPUT if isinstance(error, ArgumentError) else FAILED
    # Whatever else comes is a fault of ours, of no class that could be named: people get one line
    # and status 1, as for every failure, and --debug raises it.
    except Exception as error:
        if options.debug:
            raise
        _tell(
            f"heedmap: {type(error).__name__}: {_one_line(error)} "
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
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="print the version and stop")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_look(commands)
    _add_explore(commands)
    _add_doctor(commands)
    return parser


def _add_explore(commands: Any) -> None:
    about = "open the live map of a text, a sound, a film or a recording in the browser"
    parser = commands.add_parser(
        "explore",
        help=about,
        description=f"{about[0].upper()}{about[1:]}. It runs until Ctrl-C.",
    )
    _add_input(
        parser,
        "words, a file (text, sound, film), - for standard input, or the folder of a recording "
        "that look --save wrote",
        parser.add_argument_group("only for words and files, not for a recording"),
    )
    parser.add_argument_group("only for a recording").add_argument(
        "--media",
        type=Path,
        metavar="FILE",
        help="the sound, film or text that it is about, to be heard or seen beside it",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="the port to listen on; default: a free one",
    )
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        help="the address to listen on; default: 127.0.0.1, and with --expose all that this "
        "machine has. One that others can reach needs --expose",
    )
    parser.add_argument(
        "--expose",
        action="store_true",
        help="let others in the network reach the page: without encryption, so whoever listens in "
        "can read it. No browser is opened here: the address is good for one",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser.set_defaults(command=_explore)


def _add_doctor(commands: Any) -> None:
    about = "what this installation has to work with: kernel, threads, extras"
    parser = commands.add_parser("doctor", help=about, description=f"{about.capitalize()}.")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser.set_defaults(command=_doctor)


def _doctor(_: argparse.Namespace) -> int:
    from heedmap.doctor import examine

    _print("".join(f"{name:8} {value}\n" for name, value in examine().items()))
    return DONE


def _add_look(commands: Any) -> None:
    about = "look at a text, a sound or a film: pictures, a table, a name for each head"
    parser = commands.add_parser(
        "look",
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_input(parser, "words, a file (text, sound, film), or - for standard input", parser)
    parser.add_argument(
        "--words",
        action="store_true",
        help="print the words of a sound with their times, and nothing else: no pictures, and "
        "summary.json only with -o",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FOLDER", help="default: heedmap-out/NAME"
    )
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FOLDER",
        help="also write a recording of all layers, which heedmap.open opens in Python",
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="also write the live map as one file of at most 5 MB, for somebody without heedmap",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace the results of an earlier look"
    )
    parser.add_argument("--json", action="store_true", help="print summary.json, not a table")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser.set_defaults(command=_look)


def _add_input(parser: argparse.ArgumentParser, what: str, unseen: Any) -> None:
    """Add what says which input is looked at, by which model, and where to begin.

    What says how a model shall look at it goes to `unseen`, the parser or a group of it.
    """
    parser.add_argument("input", metavar="INPUT", help=what)
    unseen.add_argument(
        "--text", action="store_true", help="INPUT are words, even if they look like a file's name"
    )
    unseen.add_argument(
        "--model",
        metavar="NAME",
        help="a folder or a name on the Hugging Face hub; none for attention over plain features. "
        "Without it: multilingual-e5-small for text, Whisper tiny.en for sound, none for film",
    )
    parser.add_argument("--layer", type=int, metavar="N", help="the layer to show large, from 0")
    parser.add_argument("--head", type=int, metavar="N", help="the head to show large, from 0")
    parser.add_argument(
        "--query",
        metavar="Q",
        help="what shall look: a token (word, or word#2 for the second), a position (@7), a time "
        "(12.5s, 1:02.5), a film frame (f250)",
    )
    unseen.add_argument(
        "--start",
        type=float,
        metavar="SECONDS",
        help="where in a sound to begin; default: 0; some models take 30 s at a time",
    )
    unseen.add_argument(
        "--channel",
        type=int,
        metavar="N",
        help="the channel of a sound to take, from 0; the mean of all without it",
    )


def _look(options: argparse.Namespace) -> int:
    from heedmap.explore.inputs import scene_of_look
    from heedmap.explore.offline import check_free as check_page_free
    from heedmap.explore.offline import write_page
    from heedmap.look.folder import as_json, folder_name
    from heedmap.look.looking import look
    from heedmap.look.report import report
    from heedmap.media import Text

    media = _open_input(options)
    if options.words:
        return _words(options, media)
    if options.html is not None:
        check_page_free(options.html, force=options.force)
    words = isinstance(media, Text) and media.name in ("the text", "standard input")
    name = media.text if isinstance(media, Text) and words else Path(media.name).stem
    seen = look(
        media,
        model=options.model,
        layer=options.layer,
        head=options.head,
        query=options.query,
        output=options.output or Path("heedmap-out", folder_name(name)),
        save=options.save,
        force=options.force,
        start_seconds=options.start or 0.0,
        progress=_tell,
    )
    if options.html is not None:
        scene = scene_of_look(seen, _played(options, media))
        write_page(scene, options.html, force=options.force, progress=_tell)
    _print(as_json(seen.summary()) if options.json else report(seen))
    return DONE


def _explore(options: argparse.Namespace) -> int:
    is_recording = _is_recording(options)
    # Importing torch takes seconds.
    _tell("Loading …")
    from heedmap.explore.showing import explore

    def announce(url: str) -> None:
        _print(f"{url}\n")
        if options.expose:
            _tell("There is no encryption: whoever listens in can read the page.")
        _tell("Ctrl-C ends it.")

    default_host = "0.0.0.0" if options.expose else "127.0.0.1"
    explore(
        _recorded(options) if is_recording else _looked_at(options),
        host=default_host if options.host is None else options.host,
        port=options.port,
        exposed=options.expose,
        # The one browser that the address is good for is somebody else's, where others are let in.
        browser=not (options.no_browser or options.expose),
        announce=announce,
    )
    return DONE


def _is_recording(options: argparse.Namespace) -> bool:
    """Return whether the input is a recording, after a look at what may be given with it."""
    # An empty path is the current folder to Python.
    if options.text or options.input in ("", "-") or not os.path.isdir(options.input):
        if options.media is not None:
            raise ArgumentError(
                f"--media must be given for a recording; got it for {options.input}. Leave it out."
            )
        return False
    if not os.path.lexists(Path(options.input, "manifest.json")):
        raise InputError(
            "input must be words, a file, or the folder of a recording; got the folder "
            f"{options.input}, in which there is no recording. heedmap look INPUT --save FOLDER "
            "makes one."
        )
    for name in ("model", "channel", "start"):
        if getattr(options, name) is not None:
            raise ArgumentError(f"--{name} must not be given for a recording; leave it out.")
    return True


def _recorded(options: argparse.Namespace) -> Any:
    """Return the `heedmap.explore.scene.Scene` of a recording."""
    from heedmap.explore.inputs import scene_of_recording

    return scene_of_recording(
        Path(options.input),
        media=options.media,
        layer=options.layer,
        head=options.head,
        question=options.query,
    )


def _looked_at(options: argparse.Namespace) -> Any:
    """Return the `heedmap.explore.scene.Scene` of words or of a file."""
    from heedmap.explore.inputs import scene_of_input

    media = _open_input(options)
    return scene_of_input(
        media,
        _played(options, media),
        model=options.model,
        layer=options.layer,
        head=options.head,
        question=options.query,
        start_seconds=options.start or 0.0,
        progress=_tell,
    )


def _played(options: argparse.Namespace, media: Any) -> Path | None:
    """Return the file of what can be heard or seen."""
    from heedmap.media import Text

    return None if isinstance(media, Text) else Path(options.input)


def _open_input(options: argparse.Namespace) -> Any:
    """Return the text, sound or film that the arguments name, opened."""
    from heedmap.look.running import open_source
    from heedmap.media import Text

    # Python has None for a stream that was closed before it began.
    if sys.stdout is None:
        raise UnsupportedError("standard output must be open; got a closed one.")
    if options.channel is not None and (options.text or options.input == "-"):
        raise ArgumentError(
            f"--channel must be given for a sound; got {options.channel} for words. Leave it out."
        )
    if options.input == "-" and not options.text:
        if sys.stdin is None:
            raise InputError("input must be words, a file, or - while standard input is open.")
        return Text.of_bytes(sys.stdin.buffer.read(), "standard input")
    if options.text:
        return Text.of(options.input)
    return open_source(options.input, channel=options.channel)


def _words(options: argparse.Namespace, media: Any) -> int:
    """Print the words of a sound, a `heedmap.media.Sound`, or say why there can be none."""
    from heedmap.look.folder import as_json
    from heedmap.look.transcript import report, transcribe

    for name in ("layer", "head", "query", "save", "html"):
        if getattr(options, name) is not None:
            raise ArgumentError(f"--{name} must not be given with --words; got both. Choose one.")
    made = transcribe(
        media,
        model=options.model,
        output=options.output,
        force=options.force,
        start_seconds=options.start or 0.0,
        progress=_tell,
    )
    _print(as_json(made.summary()) if options.json else report(made))
    return DONE


def _print(words: str) -> None:
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
                f"standard output must take the results; got “{error.strerror}”. They are in "
                "summary.json, too."
            ) from error


def _tell(line: str) -> None:
    """Write a line to standard error, where somebody reads it; else the work goes on."""
    # Without the question, print would take standard output for a standard error that is closed.
    if sys.stderr is not None:
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)


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


if __name__ == "__main__":
    sys.exit(main())
