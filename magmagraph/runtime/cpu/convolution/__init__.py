"""Convolution and pooling, in C."""
