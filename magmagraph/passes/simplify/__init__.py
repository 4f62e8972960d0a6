"""Simplification: algebra, layout, linear algebra, and forms that keep to the range of floats."""
