"""Modules of PyTorch as functions and networks: `from_torch`."""
