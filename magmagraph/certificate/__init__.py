"""Certificates of a compile, and their check."""

from __future__ import annotations

from .verifying import Verdict, read, verify
from .writing import Certificate, certify

__all__ = ["Certificate", "Verdict", "certify", "read", "verify"]
