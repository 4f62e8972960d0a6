"""Dtypes that several families ask for."""

import numpy as np

BLAS = (np.dtype(np.float32), np.dtype(np.float64))
POSITIONS = (np.dtype(np.int32), np.dtype(np.int64))
