"""``heedmap hear RECORDING``."""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heedmap.cli.inputs import a_path
from heedmap.cli.streams import DONE, print_results, tell
from heedmap.errors import ArgumentError, InputError

STANDARD_INPUT = "standard input"

EXAMPLES = """\
examples:
  heedmap hear interview.wav
  heedmap hear interview.wav --speakers 2 --words
  heedmap hear meeting.mp4 -o minutes --save minutes/map
  heedmap explore minutes/map --media meeting.mp4
"""


def add_hear(commands: Any) -> None:
    """Add ``hear`` to the commands."""
    about = "hear who speaks when in a recording, what else is heard, and which moments say so"
    parser = commands.add_parser(
        "hear",
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "input",
        metavar="RECORDING",
        help="a sound, or a film with a sound track; - for standard input",
    )
    parser.add_argument(
        "--speakers", type=int, metavar="N", help="how many speak; found out without it"
    )
    parser.add_argument("--min-speakers", type=int, metavar="N", help="at least so many speak")
    parser.add_argument("--max-speakers", type=int, metavar="N", help="at most so many speak")
    parser.add_argument(
        "--words", action="store_true", help="also write down what is said; in English"
    )
    parser.add_argument(
        "--channel",
        type=int,
        metavar="N",
        help="the channel to take, from 0; the mean of all without it",
    )
    parser.add_argument(
        "--projections",
        type=a_path,
        metavar="FILE",
        help="learned projections, which heedmap train hear wrote; the voices are compared as they "
        "are without it",
    )
    parser.add_argument(
        "-o", "--output", type=a_path, metavar="FOLDER", help="default: heedmap-out/NAME"
    )
    parser.add_argument(
        "--save",
        type=a_path,
        metavar="FOLDER",
        help="also write the map of who looks at whom, which heedmap explore opens",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace the results of an earlier time"
    )
    parser.add_argument("--json", action="store_true", help="print speakers.json, not a table")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser.set_defaults(command=_hear)


def _hear(options: argparse.Namespace) -> int:
    # Importing torch takes seconds.
    tell("Loading …")
    from heedmap.look.folder import as_json, folder_name
    from heedmap.recording import check_free as check_recording_free
    from heedmap.speech.hearing import hear
    from heedmap.speech.report import report
    from heedmap.speech.writing import FILES, check_free

    is_stream = options.input == "-"
    stem = STANDARD_INPUT if is_stream else Path(options.input).stem
    folder = options.output or Path("heedmap-out", folder_name(stem))
    check_free(folder, force=options.force)
    if options.save is not None:
        _check_apart(options.save, folder)
        check_recording_free(options.save, force=options.force)
    with _file_of(options.input) as path:
        heard = hear(
            path,
            speakers=options.speakers,
            min_speakers=options.min_speakers,
            max_speakers=options.max_speakers,
            words=options.words,
            channel=options.channel,
            projections=options.projections,
            progress=tell,
        )
    tell("Writing …")
    heard.write(folder, force=options.force)
    saved = options.save if heard.moments.labels else None
    if saved is not None:
        heard.save(saved, force=options.force)
    elif options.save is not None:
        tell(f"There is no map to save in {options.save}: nobody speaks.")
    if options.json:
        print_results(as_json(heard.summary()))
    else:
        print_results(report(heard) + _files(folder, FILES, options.input, saved))
    return DONE


def _check_apart(save: Path, folder: Path) -> None:
    """Refuse a folder for the map that would hold the results, too."""
    results = Path(os.path.realpath(folder))
    if Path(os.path.realpath(save)) in (results, *results.parents):
        raise ArgumentError(
            f"--save must name a folder in that of the results, or elsewhere; got {save} for "
            f"{folder}."
        )


def _files(folder: Path, names: tuple[str, ...], recording: str, saved: Path | None) -> str:
    """Return where the files are, and how the map is opened."""
    lines = [f"{', '.join(names[:-1])} and {names[-1]} are in {folder}"]
    if saved is not None:
        media = "" if recording == "-" else f" --media {shlex.quote(recording)}"
        lines.append(f"heedmap explore {shlex.quote(str(saved))}{media} opens the map")
    return "\n" + "\n".join(lines) + "\n"


@contextmanager
def _file_of(given: str) -> Iterator[Path]:
    """Yield the file that the argument names; what comes from standard input is put into one."""
    if given != "-":
        if not given:
            raise InputError("input must be the file of a recording; got nothing.")
        yield Path(given)
        return
    if sys.stdin is None:
        raise InputError("input must be a file where standard input is closed; got -.")
    with tempfile.TemporaryDirectory(prefix="heedmap-") as folder:
        path = Path(folder, STANDARD_INPUT)
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path
