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


def run(options: argparse.Namespace) -> int:
    """Print the verdict."""
    from ..certificate import certify, read, verify

    data = read(options.certificate)
    other = None
    if options.program is not None:
        function_or_nodes, space, name = target.load(options.program)
        function = target.function_of(function_or_nodes, name)
        feeds, text = target.feeds_of(function, space, options)
        print(text)
        other = certify(function, *feeds).data
    verdict = verify(data, other)
    print(verdict)
    return 0 if verdict.ok else 1
