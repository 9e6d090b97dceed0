"""The input that `look` and `explore` share: how it is asked for, and its opening."""

import argparse
import sys
from pathlib import Path
from typing import Any

from heedmap.errors import ArgumentError, InputError


def a_path(given: str) -> Path:
    """Return what names a file or folder; an empty name would be the current folder's."""
    if not given:
        raise argparse.ArgumentTypeError("must name a file or folder; got an empty name")
    return Path(given)


def add_input(parser: argparse.ArgumentParser, what: str, unseen: Any) -> None:
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


def open_input(options: argparse.Namespace) -> Any:
    """Return the text, sound or film that the arguments name, opened."""
    from heedmap.look.running import open_source
    from heedmap.media import Text

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


def played(options: argparse.Namespace, media: Any) -> Path | None:
    """Return the file of what can be heard or seen."""
    from heedmap.media import Text

    return None if isinstance(media, Text) else Path(options.input)
