"""The command line: ``heedmap look``, ``explore``, ``hear`` and more, a file for each command.

Results go to standard output, progress and errors to standard error. The status is 0 when done, 1
when something failed, 2 for wrong usage or input, 130 when interrupted. What takes long to import
is imported inside the commands, so that ``--help`` answers at once.
"""

from heedmap.cli.main import main
from heedmap.cli.streams import DONE, FAILED, INTERRUPTED, WRONG_INPUT

__all__ = ["DONE", "FAILED", "INTERRUPTED", "WRONG_INPUT", "main"]
