"""Cache keys, which are equal only where all inputs of the cached value are.

This module needs Python's own library alone, since libraries are built, and their keys made,
before anything else is installed.
"""

from __future__ import annotations

import hashlib

__all__ = ["content_key"]


def content_key(*parts: str | bytes) -> str:
    """Return a key that is the same only where all parts are.

    Parameters
    ----------
    *parts : str or bytes
        What the cached value was made from.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> content_key("ab", "c") == content_key("a", "bc")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
