"""Data sets, files and batches.

======================  =====================================================================
`mnist`                 the handwritten digits, found, downloaded, or replaced by smaller ones
`cifar10`               color images of ten kinds of things; `read_cifar10` reads one file
`read_idx`              the array in a file of the IDX format, gzipped or not
`read_csv`              the numbers in a file of separated values, with names and categories
`write_csv`             a matrix as separated values that read back exactly
`read_npy`, `read_npz`  the arrays in a file that `numpy.save` or `numpy.savez` wrote
`read_hdf5`             the arrays in a file of the HDF5 format
`read_images`           images in folders, one for each class
`batches`               the rows of some arrays, shuffled anew every epoch, a batch at a time
`prefetch`              batches made ahead of time, by a thread
`random_crop`,          augmentation of images, as nodes of the graph
`random_flip`
`normalize`             a mean taken away, divided by a deviation, as a node
======================  =====================================================================

A file that is missing, truncated or of another form raises `magmagraph.errors.DataError`, which
names the file and what is wrong in it.
"""

from typing import NoReturn

from ..help.argument_errors import tell, tell_classes
from .arrays import read_npy, read_npz
from .augmentation import normalize, random_crop, random_flip
from .batching import Batches, batches
from .cifar import cifar10, read_cifar10
from .csv_files import Table, read_csv, write_csv
from .datasets import Dataset, mnist
from .hdf5 import read_hdf5
from .idx import read_idx
from .images import LabelledImages, read_images
from .prefetching import Prefetched, prefetch

__all__ = [
    "Batches",
    "Dataset",
    "LabelledImages",
    "Prefetched",
    "Table",
    "batches",
    "cifar10",
    "mnist",
    "normalize",
    "prefetch",
    "random_crop",
    "random_flip",
    "read_cifar10",
    "read_csv",
    "read_hdf5",
    "read_idx",
    "read_images",
    "read_npy",
    "read_npz",
    "write_csv",
]

tell(globals(), __all__)
tell_classes(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> NoReturn:
    from ..help.spellings import missing

    raise missing(__name__, name)
