"""Small linear algebra in C: factorizations, solutions and determinants of batches of matrices."""
