"""``python -m heedmap.cli`` does what ``heedmap`` does."""

import sys

from heedmap.cli import main

if __name__ == "__main__":
    sys.exit(main())
