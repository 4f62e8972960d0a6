"""Plans on CUDA devices: CuPy arrays, kernels by NVRTC, products by cuBLASLt, captured graphs."""
