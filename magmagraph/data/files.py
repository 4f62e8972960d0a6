"""Where data files are, and how they are written and read."""

from __future__ import annotations

import os
from pathlib import Path

from ..config import config
from ..errors import DataError, message
from ..files.reading import unreadable
from ..files.trust import home_cache
from ..files.writing import replace_file

__all__ = ["replace_file", "unreadable", "user_cache"]


def user_cache() -> Path:
    """Return the folder of this user that holds what can be had again.

    ``mg.config.cache_dir``, else ``MAGMAGRAPH_CACHE_DIR``, else ``magmagraph`` in
    ``XDG_CACHE_HOME``, else ``~/.cache/magmagraph``, as for compiled kernels. It need not exist
    yet.

    raises DataError: The user has no home folder.
    """
    chosen = config.cache_dir or os.environ.get("MAGMAGRAPH_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    shared = home_cache()
    if shared is None:
        raise DataError(
            message(
                "no folder can keep downloaded data: this user has no home folder",
                hint="set MAGMAGRAPH_CACHE_DIR to a folder",
            )
        )
    return shared / "magmagraph"
