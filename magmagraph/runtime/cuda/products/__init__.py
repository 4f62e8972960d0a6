"""Matrix products: generated ones, cuBLASLt, and what is computed on their tiles."""
