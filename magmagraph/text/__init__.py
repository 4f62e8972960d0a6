"""Graphs, plans and functions as text and as files, and back."""

from __future__ import annotations

from .writing import dump

__all__ = ["dump"]
