"""Linear algebra: systems, factorizations, eigenvalues, norms."""
