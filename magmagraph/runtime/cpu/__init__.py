"""The CPU: generated C kernels, BLAS and NumPy."""
