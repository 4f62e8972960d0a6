"""``python -m magmagraph.data mnist``: have MNIST at hand, downloading it if need be.

The exit status is 0 if the digits are there, 3 if they cannot be had.
"""

import sys

from ..errors import DataError
from .datasets import mnist


def main(arguments: list[str]) -> int:
    """Fetch the data set that is named; return the exit status."""
    if arguments != ["mnist"]:
        print("usage: python -m magmagraph.data mnist", file=sys.stderr)
        return 2
    try:
        print(mnist(substitute=False))
    except (DataError, OSError) as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
