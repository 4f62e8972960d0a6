"""Precision: products of fewer digits where the caller allows them, and the scale of losses."""
