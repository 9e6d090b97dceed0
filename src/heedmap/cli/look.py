"""``heedmap look INPUT``."""

import argparse
from pathlib import Path
from typing import Any

from heedmap.cli.inputs import a_path, add_input, open_input, played
from heedmap.cli.streams import DONE, print_results, tell
from heedmap.errors import ArgumentError

EXAMPLES = """\
examples:
  heedmap look "to be or not to be" --query be#2
  heedmap look interview.wav --query 12.5s
  heedmap look interview.wav --words
  heedmap look holiday.mp4 -o pictures
  some-command | heedmap look -
  heedmap explore interview.wav
"""


def add_look(commands: Any) -> None:
    """Add ``look`` to the commands."""
    about = "look at a text, a sound or a film: pictures, a table, a name for each head"
    parser = commands.add_parser(
        "look",
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input(parser, "words, a file (text, sound, film), or - for standard input", parser)
    parser.add_argument(
        "--words",
        action="store_true",
        help="print the words of a sound with their times, and nothing else: no pictures, and "
        "summary.json only with -o",
    )
    parser.add_argument(
        "-o", "--output", type=a_path, metavar="FOLDER", help="default: heedmap-out/NAME"
    )
    parser.add_argument(
        "--save",
        type=a_path,
        metavar="FOLDER",
        help="also write a recording of all layers, which heedmap.open opens in Python",
    )
    parser.add_argument(
        "--html",
        type=a_path,
        metavar="FILE",
        help="also write the live map as one file of at most 5 MB, for somebody without heedmap",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace the results of an earlier look"
    )
    parser.add_argument("--json", action="store_true", help="print summary.json, not a table")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser.set_defaults(command=_look)


def _look(options: argparse.Namespace) -> int:
    from heedmap.explore.inputs import scene_of_look
    from heedmap.explore.offline import check_free as check_page_free
    from heedmap.explore.offline import write_page
    from heedmap.look.folder import as_json, folder_name
    from heedmap.look.looking import look
    from heedmap.look.report import report
    from heedmap.media import Text

    media = open_input(options)
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
        progress=tell,
    )
    if options.html is not None:
        scene = scene_of_look(seen, played(options, media))
        write_page(scene, options.html, force=options.force, progress=tell)
    print_results(as_json(seen.summary()) if options.json else report(seen))
    return DONE


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
        progress=tell,
    )
    print_results(as_json(made.summary()) if options.json else report(made))
    return DONE
