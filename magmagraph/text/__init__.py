"""Graphs and plans as text, and back."""

from __future__ import annotations

from .writing import dump

__all__ = ["dump"]
