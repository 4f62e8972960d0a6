"""Matrix products: generated kernels, cuBLASLt, and epilogues on their tiles."""
