"""Scalar functions in C, which the expressions of op records call."""
