"""Matrix products: by BLAS, and by generated tiles."""
