"""``python -m magmagraph`` is the command ``magmagraph``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
