"""Data sets, files and batches.

=====================  =====================================================================
`mnist`                the handwritten digits, found, downloaded, or replaced by smaller ones
`read_idx`             the array in a file of the IDX format, gzipped or not
`read_csv`             the numbers in a file of separated values, with names and categories
`write_csv`            a matrix as separated values that read back exactly
`read_npy`, `read_npz` the arrays in a file that `numpy.save` or `numpy.savez` wrote
`batches`              the rows of some arrays, shuffled anew every epoch, a batch at a time
=====================  =====================================================================

A file that is missing, truncated or of another form raises `magmagraph.errors.DataError`, which
names the file and what is wrong in it.
"""

from .arrays import read_npy, read_npz
from .batching import Batches, batches
from .csv_files import Table, read_csv, write_csv
from .datasets import Dataset, mnist
from .idx import read_idx

__all__ = [
    "Batches",
    "Dataset",
    "Table",
    "batches",
    "mnist",
    "read_csv",
    "read_idx",
    "read_npy",
    "read_npz",
    "write_csv",
]
