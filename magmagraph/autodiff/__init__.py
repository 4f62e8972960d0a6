"""Differentiation: the backward sweep, what is made of it, and values that an equation defines."""
