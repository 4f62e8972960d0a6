"""Reductions, running sums, and statistics."""
