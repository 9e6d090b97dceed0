"""``heedmap doctor``."""

import argparse
from typing import Any

from heedmap.cli.streams import DONE, print_results


def add_doctor(commands: Any) -> None:
    """Add ``doctor`` to the commands."""
    about = "what this installation has to work with: kernel, threads, extras"
    parser = commands.add_parser("doctor", help=about, description=f"{about.capitalize()}.")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser.set_defaults(command=_doctor)


def _doctor(_: argparse.Namespace) -> int:
    from heedmap.doctor import examine

    print_results("".join(f"{name:8} {value}\n" for name, value in examine().items()))
    return DONE
