"""Matrix products on a device: generated kernels, loaded, and cuBLASLt."""
