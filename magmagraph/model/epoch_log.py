"""The file to which `Model.fit` writes a line for each epoch: ``MAGMAGRAPH_EPOCH_LOG``."""

from __future__ import annotations

import json
import os
from typing import Any

from ..errors import StorageError, message

__all__ = ["write_epoch"]

VARIABLE = "MAGMAGRAPH_EPOCH_LOG"


def write_epoch(**about: Any) -> None:
    """Append a line of JSON to the file that the environment names; do nothing without one.

    Raises
    ------
    StorageError
        If the file cannot be written.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    try:
        place = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            # Write at once: independent processes may append to the same file.
            os.write(place, f"{json.dumps(about)}\n".encode())
        finally:
            os.close(place)
    except OSError as error:
        raise StorageError(
            message(f"{VARIABLE}={path!r} cannot be written: {error.strerror}", need="a file")
        ) from None
