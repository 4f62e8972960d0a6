"""Arithmetic and what else is computed element by element."""
