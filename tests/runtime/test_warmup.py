"""What is built beside the first compile's passes: what the graph will want, and nothing else."""

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.runtime.cpu import warmup
from magmagraph.runtime.cpu.convolution.convolution import convolution_source
from magmagraph.runtime.cpu.convolution.pooling import pooling_source
from magmagraph.runtime.cpu.products.products import product_source, tiled_source

FLOAT32 = np.dtype(np.float32)


@pytest.fixture
def started(monkeypatch):
    """Collect the sources that are begun, instead of compiling them."""
    found = []
    monkeypatch.setattr(warmup, "_begun", set())
    monkeypatch.setattr(
        warmup, "start_support", lambda sources, levels: found.append(list(sources))
    )
    return found


def _begin(inputs, outputs):
    warmup.begin(mg.function(inputs, outputs, device="cpu").source_graph)


def test_rows_want_no_products(started):
    x = mg.input("x", shape=("n", 100))
    _begin([x], [mg.softmax(x), mg.logsumexp(x, axis=-1)])
    assert started == [[]]


def test_products_with_vectors_want_no_tiles(started):
    x = mg.input("x", shape=("n", 100))
    v = mg.input("v", shape=(100,))
    _begin([x, v], [x @ v])
    assert started == [[product_source(FLOAT32)]]
    w = mg.input("w", shape=(100, 7))
    _begin([x, w], [x @ w])  # what was begun is not begun again
    assert started[1:] == [[tiled_source(FLOAT32)]]
    _begin([x, w], [mg.exp(x @ w)])
    assert len(started) == 2


def test_products_inside_of_a_loop_are_seen(started):
    x = mg.input("x", shape=(5, 5))
    _begin([x], [mg.scan(lambda carry, row: (carry @ x, row), x, length=3)[0]])
    assert started == [[product_source(FLOAT32), tiled_source(FLOAT32)]]


def test_convolutions_want_the_algorithms_that_are_tried(started):
    image = mg.input("image", shape=("n", 8, 10, 10))
    wide = mg.input("wide", shape=(4, 8, 5, 5))
    _begin([image, wide], [mg.conv2d(image, wide, stride=2)])
    assert started == [[convolution_source(FLOAT32, "direct")]]  # which needs no products
    image = mg.input("image", shape=("n", 128, 10, 10))
    many = mg.input("many", shape=(128, 128, 3, 3))
    _begin([image, many], [mg.conv2d(image, many)])
    others = [convolution_source(FLOAT32, name) for name in ("winograd-2x2", "im2col")]
    assert started[1:] == [[product_source(FLOAT32), *others]]


def test_pooling_is_built_by_kernel(started):
    image = mg.input("image", shape=("n", 3, 10, 10))
    pooled = mg.max_pool2d(image, 2)
    _begin([image], [pooled])
    assert started == [[pooling_source(FLOAT32, "max_pool")]]
    _begin([image], [mg.grad(mg.sum(pooled), image)])
    names = ("max_pool_taps", "pool_spread")
    assert started[1:] == [[pooling_source(FLOAT32, name) for name in names]]
