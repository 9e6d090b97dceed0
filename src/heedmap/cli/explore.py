"""``heedmap explore INPUT``."""

import argparse
import os
from pathlib import Path
from typing import Any

from heedmap.cli.inputs import a_path, add_input, open_input, played
from heedmap.cli.streams import DONE, print_results, tell
from heedmap.errors import ArgumentError, InputError


def add_explore(commands: Any) -> None:
    """Add ``explore`` to the commands."""
    about = "open the live map of a text, a sound, a film or a recording in the browser"
    parser = commands.add_parser(
        "explore",
        help=about,
        description=f"{about[0].upper()}{about[1:]}. It runs until Ctrl-C.",
    )
    add_input(
        parser,
        "words, a file (text, sound, film), - for standard input, or the folder of a recording "
        "that look --save wrote",
        parser.add_argument_group("only for words and files, not for a recording"),
    )
    parser.add_argument_group("only for a recording").add_argument(
        "--media",
        type=a_path,
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


def _explore(options: argparse.Namespace) -> int:
    is_recording = _is_recording(options)
    # Importing torch takes seconds.
    tell("Loading …")
    from heedmap.explore.showing import explore

    def announce(url: str) -> None:
        print_results(f"{url}\n")
        if options.expose:
            tell("There is no encryption: whoever listens in can read the page.")
        tell("Ctrl-C ends it.")

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

    media = open_input(options)
    return scene_of_input(
        media,
        played(options, media),
        model=options.model,
        layer=options.layer,
        head=options.head,
        question=options.query,
        start_seconds=options.start or 0.0,
        progress=tell,
    )
