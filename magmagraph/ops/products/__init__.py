"""Products of matrices and tensors."""
