"""``heedmap score REFERENCE HYPOTHESIS``."""

import argparse
from typing import Any

from heedmap.cli.inputs import a_path
from heedmap.cli.streams import DONE, print_results

DESCRIPTION = """\
Compare who was found to speak when with who truly did: the diarisation error rate with its parts,
for each recording and for all together. Overlap is scored.
"""


def add_score(commands: Any) -> None:
    """Add ``score`` to the commands."""
    parser = commands.add_parser(
        "score",
        help="compare who was found to speak when with who truly did: error rates",
        description=DESCRIPTION,
    )
    parser.add_argument(
        "reference", type=a_path, metavar="REFERENCE", help="RTTM of the true turns"
    )
    parser.add_argument(
        "hypothesis", type=a_path, metavar="HYPOTHESIS", help="RTTM of the turns that were found"
    )
    parser.add_argument(
        "--uem",
        type=a_path,
        metavar="FILE",
        help="what is scored of which recording; without it, each recording of the reference from "
        "the first to the last turn of either side",
    )
    parser.add_argument(
        "--collar",
        type=float,
        metavar="SECONDS",
        help="what is left out on each side of every start and end of a true turn (pyannote's "
        "collar is twice that); default: once 0 and once 0.25",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser.set_defaults(command=_score)


def _score(options: argparse.Namespace) -> int:
    from heedmap.look.folder import as_json
    from heedmap.speech.rttm import read_rttm, read_uem
    from heedmap.speech.score_table import report
    from heedmap.speech.scoring import COLLARS_SECONDS, score

    scores = score(
        read_rttm(options.reference),
        read_rttm(options.hypothesis),
        uem=None if options.uem is None else read_uem(options.uem),
        collars_seconds=COLLARS_SECONDS if options.collar is None else (options.collar,),
    )
    print_results(as_json(scores.summary()) if options.json else report(scores))
    return DONE
