"""Check a certificate of a compile, which `f.certify` wrote, without trusting the compiler.

The exit status is 0 if nothing fails, and 1 otherwise.
"""

from __future__ import annotations

import argparse

from . import target


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("certificate", metavar="FILE", help="the certificate")
    parser.add_argument(
        "--program",
        metavar="FILE.py:NAME",
        help="compile this function, and compare the certificate with its own; the file is run",
    )
    target.declare_feeds(parser)


def run(chosen: argparse.Namespace) -> int:
    """Print the verdict."""
    from ..certificate import certify, read, verify

    data = read(chosen.certificate)
    other = None
    if chosen.program is not None:
        found, space, name = target.load(chosen.program)
        function = target.function_of(found, name)
        feeds, text = target.feeds_of(function, space, chosen)
        print(text)
        other = certify(function, *feeds).data
    verdict = verify(data, other)
    print(verdict)
    return 0 if verdict.ok else 1
