"""Checks of the user's work: gradients, records of operations, values on the way."""
