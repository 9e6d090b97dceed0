"""``heedmap train hear``."""

import argparse
from typing import Any

from heedmap.cli.inputs import a_path
from heedmap.cli.streams import DONE, print_results, tell

HEAR = """\
Train projections for the attention with which heedmap hear links voices: conversations are made of
single voices, heard, and learned from. Three in ten of the voices are held out, and what serves
them best is kept.

The voices are fetched from Debian packages: games and announcements under GPL-2 and later, CC BY-SA
and CC BY. Neither they nor anything learned from them is part of heedmap.
"""

EXAMPLES = """\
examples:
  heedmap train hear --output trained
  heedmap train hear --output trained --resume
  heedmap hear interview.wav --projections trained/projections.pt
"""


def add_train(commands: Any) -> None:
    """Add ``train`` to the commands."""
    about = "train what heedmap learns by itself"
    parser = commands.add_parser("train", help=about, description=f"{about.capitalize()}.")
    kinds = parser.add_subparsers(title="what to train", required=True, metavar="WHAT")
    _add_hear(kinds)


def _add_hear(kinds: Any) -> None:
    parser = kinds.add_parser(
        "hear",
        help="projections for heedmap hear",
        description=HEAR,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-o",
        "--output",
        type=a_path,
        required=True,
        metavar="FOLDER",
        help="where projections.pt, the log and what is needed to resume come",
    )
    parser.add_argument(
        "--voices",
        type=a_path,
        metavar="FOLDER",
        help="a folder with a folder of sound files for each voice, recorded all in one way, "
        "instead of the packaged ones",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="chooses all that is drawn; default: 0"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="how many steps; default: 500")
    parser.add_argument(
        "--resume", action="store_true", help="go on with what the folder holds, if anything"
    )
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser.set_defaults(command=_train_hear)


def _train_hear(options: argparse.Namespace) -> int:
    # Importing torch takes seconds.
    tell("Loading …")
    from heedmap.speech.material import (
        MINOR_VOICES,
        SCHOOL_VOICES,
        TELEPHONE_VOICES,
        packaged_voices,
        voices_of_folder,
    )
    from heedmap.speech.training import STEPS, train_hear

    if options.voices is None:
        pools = [
            packaged_voices(TELEPHONE_VOICES, tell),
            packaged_voices(MINOR_VOICES | SCHOOL_VOICES, tell),
        ]
    else:
        pools = [voices_of_folder(options.voices)]
    trained = train_hear(
        options.output,
        pools,
        seed=options.seed,
        steps=STEPS if options.steps is None else options.steps,
        resume=options.resume,
        progress=tell,
    )
    print_results(_report(trained))
    return DONE


def _report(trained: Any) -> str:
    lines = [
        f"voices held out: {', '.join(trained.held_out)}",
        f"their loss with the identity: {trained.identity_loss:.4f}",
        f"their loss at best: {trained.learned_loss:.4f}, after {trained.steps} steps",
        f"{trained.path} holds what was best",
    ]
    if not trained.steps:
        lines.append("nothing that was learned was better: these projections are the identity")
    return "\n".join(lines) + "\n"
