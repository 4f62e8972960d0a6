"""Random programs over named dimensions on a GPU, called with sizes 0, 1, 2, prime and large."""

from __future__ import annotations

import numpy as np
import pytest
from random_sizes import fuzz

pytestmark = pytest.mark.gpu


def test_a_sample() -> None:
    with np.errstate(all="ignore"), np.printoptions(threshold=12, edgeitems=2):
        counts, failures = fuzz(60, 0, 120.0, "cuda")
    assert not failures, "\n".join(failures)
    assert counts["compared"] > 60
