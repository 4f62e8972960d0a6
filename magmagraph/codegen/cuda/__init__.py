"""CUDA C of kernels, and how many blocks and threads launch it; nothing here needs a device."""
