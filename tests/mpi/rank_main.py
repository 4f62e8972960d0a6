"""A rank of a pool of the tests: calls the functions that it is sent, and answers."""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys
import traceback
from multiprocessing.connection import Client
from pathlib import Path


def main() -> None:
    rank = int(os.environ["PMI_RANK"])
    # A file for each rank, whatever writes: Python, a library, the handler of a crash.
    path = Path(os.environ["MAGMAGRAPH_TEST_FOLDER"]) / f"rank{rank}"
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout.reconfigure(line_buffering=True)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    host, port = os.environ["MAGMAGRAPH_TEST_ADDRESS"].split(":")
    key = bytes.fromhex(os.environ["MAGMAGRAPH_TEST_KEY"])
    line = Client((host, int(port)), authkey=key)
    line.send((rank, os.getpid()))
    while True:
        try:
            asked = line.recv()
        except (EOFError, OSError):  # the tests are gone: nobody is to wait for this process
            os._exit(1)
        except Exception:  # what it was sent cannot be read here
            line.send((True, traceback.format_exc()))
            continue
        if asked is None:
            return
        (module, name), arguments = asked
        try:
            function = importlib.import_module(module)
            for part in name.split("."):
                function = getattr(function, part)
            answer = (False, function(*arguments))
        except BaseException:
            answer = (True, traceback.format_exc())
        try:
            line.send(answer)
        except Exception:  # a result that cannot be sent
            line.send((True, traceback.format_exc()))


if __name__ == "__main__":
    main()
