"""Run a command that ends with the process that has started it, however that ends.

Started as a file, with the number of that process and the command, by a Python without the package:
``python -P -S tied.py 4711 mpiexec -n 2 ...``. On Linux the kernel sends the command SIGTERM when
its parent has ended. Elsewhere the ranks notice by their lines that the launcher is gone.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the kernel was asked
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
