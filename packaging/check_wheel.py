"""Check an installed wheel: common programs run by its libraries where no compiler is on the path.

These are products, training steps of networks that are not those of common_regions.py, predictions,
and functions such as softmax. A step that falls back to NumPy is an error.

python packaging/check_wheel.py [FOLDER OF AN UNPACKED WHEEL]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

PROGRAM = """
import warnings
import numpy as np
import magmagraph as mg
from magmagraph.runtime.cpu import installed

found = installed.found()
assert found is not None and found.variant, "the wheel has no libraries for this processor"
warnings.simplefilter("error")
x, w = mg.input("x", shape=("n", 100)), mg.input("w", shape=(100, 7))
f = mg.function([x, w], [x @ w], device="cpu")
got = f(np.ones((3, 100), np.float32), np.full((100, 7), 0.5, np.float32))[0]
assert (np.asarray(got) == 50.0).all(), got
assert not f.report.fallbacks, f.report.fallbacks

rng = np.random.default_rng(0)
data = rng.normal(size=(90, 30)).astype("float32")
steps = 0
for activation, optimizer in (("relu", mg.optimizer.Adam(1e-3)), ("tanh", mg.optimizer.SGD(0.1))):
    net = mg.NeuralNetwork(
        [mg.nn.Input((30,)), mg.nn.Dense(24, activation), mg.nn.Dense(24, activation),
         mg.nn.Dense(3)],
        loss="cross_entropy", optimizer=optimizer, device="cpu",
    )
    history = net.fit(data, data[:, :3].argmax(1), batch_size=40, epochs=3, verbose=0)
    assert history["loss"][-1] < history["loss"][0], history["loss"]
    net.predict(data)
    for used in (net.step, net.function):
        assert not used.report.fallbacks, used.report.fallbacks
        steps += len(used.plan.steps)
y = mg.input("y", shape=("n", "m"))
for name in ("softmax", "log_softmax", "gelu", "exp"):
    f = mg.function([y], getattr(mg, name)(y), device="cpu")
    assert np.isfinite(np.asarray(f(data))).all(), name
    assert not f.report.fallbacks, (name, f.report.fallbacks)
for reduce in (mg.sum, mg.mean, mg.max):
    f = mg.function([y], reduce(y, axis=1), device="cpu")
    f(data)
    assert not f.report.fallbacks, (reduce, f.report.fallbacks)
print(f"{steps} steps of training and prediction, and 7 functions, as compiled kernels")
print(f"{mg.__version__}: {len(found.portable[found.variant])} libraries for {found.variant}")
"""


def main() -> None:
    """Run the program in a process without a path."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PATH": folder, "MAGMAGRAPH_CACHE_DIR": folder}
        for name in ("MAGMAGRAPH_CC", "MAGMAGRAPH_INSTALLED", "PYTHONPATH"):
            environment.pop(name, None)
        if len(sys.argv) > 1:
            environment["PYTHONPATH"] = sys.argv[1]
        # In another folder, so that it is the wheel that is imported.
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, cwd=folder, check=False
        )
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
