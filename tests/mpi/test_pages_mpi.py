"""The blocks of the pages on many processes run as they stand there, behind what they leave out."""

from __future__ import annotations

import re
import sys
import textwrap

import pytest
from jobs import ROOT, run

_BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_DATA = """
    import numpy as np
    import magmagraph as mg
    from interpreted import assert_close

    rng = np.random.default_rng(0)
    rows = 400
    x_train = rng.normal(size=(rows, 784)).astype(np.float32)
    y_train = rng.integers(10, size=rows)
"""

_NETWORK = """
    def network(optimizer=None):
        return mg.NeuralNetwork(
            [mg.nn.Input((784,)), mg.nn.Dense(16, "relu"), mg.nn.Dense(10)],
            loss="cross_entropy", optimizer=optimizer or mg.optimizer.SGD(0.1))
"""

_GRAPH = """
    x = mg.var("x", shape=("batch", 784))
    y = mg.var("y", shape=("batch",), dtype="int32")
    W = mg.var("W", shape=(784, 10), init=mg.init.glorot_uniform(seed=0))
    weights, optimizer = [W], mg.optimizer.SGD(0.1)
    loss = mg.cross_entropy(x @ W, y)
"""

# By page and number of the block: ranks, what stands before it, and what must hold after it.
_AROUND = {
    ("distributed", 0): (2, _DATA, "assert len(net.history['loss']) == 5, net.history"),
    ("distributed", 1): (
        2, _DATA + _GRAPH,
        """
    assert images.shape == (200, 784), images.shape
    once, again = step(images, labels), step(images, labels)
    assert again[0] < once[0], (once, again)
    """,
    ),
    ("distributed", 2): (
        2,
        _DATA + _NETWORK + """
    net, x, y, x_test, y_test = network(), x_train, y_train, x_train[:50], y_train[:50]
    """,
        "assert len(net.history['loss']) == 5, net.history",
    ),
    ("distributed", 3): (
        2,
        _DATA + _NETWORK + """
    strategy = mg.distributed.DataParallel(algorithm="async")
    network().fit(x_train, y_train, batch_size=40, epochs=1, distribute=strategy)
    """,
        "assert sum(strategy.staleness.values()) > 0, strategy.staleness",
    ),
    ("distributed", 4): (
        8, _DATA + _NETWORK + "    net = network()\n",
        "assert len(net.history['loss']) == 1, net.history",
    ),
    ("distributed", 5): (
        4,
        _DATA + """
    x = mg.constant(x_train[mg.distributed.rank() * 100 :][:100, :8])
    """,
        # In the mesh, as the block's last line.
        """
        values = mg.function([], [total, mine, column])()
        whole = x_train[:, :8]
        rank = mg.distributed.rank()
        assert_close(values[0], whole.sum(axis=0), "float32", 400.0)
        assert_close(values[1], 4 * values[0][2 * rank : 2 * rank + 2], "float32", 400.0)
        pair = whole.reshape(2, 2, 100, 8)[rank // 2]
        assert_close(values[2], pair.sum(axis=0), "float32", 400.0)
    """,
    ),
    ("launching", 1): (
        2, _DATA + _NETWORK + "    net, x, y = network(), x_train, y_train\n",
        "assert len(net.history['loss']) == 50",
    ),
}


def _blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return _BLOCK.findall(text)


def test_every_block_is_run() -> None:
    found = [(page, i) for page in ("distributed", "launching") for i in range(len(_blocks(page)))]
    assert sorted([*_AROUND, ("launching", 0)]) == found


@pytest.mark.parametrize(
    ("page", "number"),
    [
        # Ranks that share a core wait for each other by taking it.
        pytest.param(*block, marks=[pytest.mark.slow] if ranks > 4 else [])
        for block, (ranks, *_) in _AROUND.items()
    ],
)
def test_a_block_runs_on_ranks(mpiexec, page, number):
    ranks, before, after = _AROUND[page, number]
    inside = "    " if (page, number) == ("distributed", 5) else ""
    after = textwrap.indent(textwrap.dedent(after), inside)
    parts = [textwrap.dedent(before), _blocks(page)[number], after, "print('right')\n"]
    done = mpiexec(ranks, "\n".join(parts), timeout=60 if ranks <= 4 else 120)
    assert done.status == 0, done.stderr
    assert done.stdout.count("right") == ranks, done.stdout


def test_a_function_is_launched_as_the_page_says(tmp_path):
    (block,) = _blocks("launching")[:1]
    (tmp_path / "mine.py").write_text(
        "import magmagraph as mg\n\n\ndef train(rate):\n"
        "    return rate * mg.distributed.rank(), mg.distributed.size()\n"
    )
    script = tmp_path / "script.py"
    script.write_text(block + "    assert results == [(0.1 * i, 4) for i in range(4)], results\n")
    done = run([sys.executable, str(script)], folder=tmp_path, timeout=60)
    assert done.status == 0, done.stderr
