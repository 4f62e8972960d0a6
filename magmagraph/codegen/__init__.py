"""Generated code: regions, and the C and CUDA text of their kernels."""
