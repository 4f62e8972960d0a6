"""ONNX's own node tests that do not pass here, with the reasons; docs/onnx.md shows them.

The counts are those of the version of onnx that is named: tests/interchange/test_onnx_backend.py
compares them, and tests each case that no row takes.
"""

from __future__ import annotations

import re

VERSION = "1.23.2"
TESTS = 1884
PASSED = 1812
#: Those of the passed whose inputs decide shapes, and are given as ``values=``.
WITH_VALUES = 357

# A pattern of names of tests, and why these do not pass.
LEFT_OUT: tuple[tuple[str, str], ...] = (
    ("test_nonmaxsuppression_.*", "`NonMaxSuppression`: the number of boxes depends on the data"),
    ("test_bernoulli.*", "ONNX does not say which bits random numbers are made of"),
    ("test_training_dropout(_default)?(_mask)?", "random numbers, as above"),
    (
        "test_(string|tfidfvectorizer|regex|strnormalizer|equal_string).*",
        "texts: a graph computes with numbers",
    ),
    ("test_ai_onnx_ml_label_encoder.*", "texts: a graph computes with numbers"),
    ("test_image_decoder_.*", "`ImageDecoder`: files of images are read by `mg.data`"),
    (
        "test_ai_onnx_ml_tree.*",
        "trees of the domain `ai.onnx.ml`: models that are not networks",
    ),
    ("test_bitcast_.*(float|double).*", "`BitCast` between floats and ints"),
    ("test_loop11", "`Slice`: a size depends on what a loop computes"),
    ("test_scan_sum", "`Scan` of opset 8, which had an axis of batches"),
)


def reason_of(name: str) -> str | None:
    """Return why a test does not pass, None where it does."""
    for pattern, reason in LEFT_OUT:
        if re.fullmatch(pattern, name):
            return reason
    return None
