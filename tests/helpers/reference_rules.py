"""Rules of optimizers written out in NumPy, for the tests of optimizers."""

import numpy as np

import magmagraph as mg
from magmagraph.dtypes import canonical, tolerance

opt = mg.optimizer
STEPS = 7
START = {"w": np.array([0.5, -1.5, 2.0]), "b": np.array(0.7)}
TARGET = np.array([1.0, 0.5, -0.5])


def variables() -> dict[str, mg.Variable]:
    return {name: mg.var(name, init=value) for name, value in START.items()}


def loss_of(v: dict[str, mg.Node]) -> mg.Node:
    return mg.sum((v["w"] - TARGET) ** 2) * 0.5 + 1.5 * v["b"] ** 2


def slopes(w: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return w - TARGET, 3.0 * b


class Rule:
    """One element of the parameters under a rule, written out in NumPy."""

    def __init__(self, step):
        self.step = step

    def run(self, steps=STEPS):
        w, b = START["w"].copy(), START["b"].copy()
        memory = [{}, {}]
        for t in range(1, steps + 1):
            gw, gb = slopes(w, b)
            w, b = self.step(w, gw, memory[0], t), self.step(b, gb, memory[1], t)
        return {"w": w, "b": b}


def plain(p, g, m, t):
    return p - 0.1 * g


def decaying(p, g, m, t):
    return p - 0.1 * (g + 0.2 * p)


def momentum(p, g, m, t):
    m["v"] = 0.8 * m.get("v", 0.0) + g + 0.2 * p
    return p - 0.1 * m["v"]


def nesterov(p, g, m, t):
    g = g + 0.2 * p
    m["v"] = 0.8 * m.get("v", 0.0) + g
    return p - 0.1 * (g + 0.8 * m["v"])


def adagrad(p, g, m, t):
    m["s"] = m.get("s", 0.3) + g**2
    return p - 0.1 * g / (np.sqrt(m["s"]) + 1e-10)


def rmsprop(p, g, m, t):
    m["s"] = 0.7 * m.get("s", 0.0) + 0.3 * g**2
    return p - 0.1 * g / (np.sqrt(m["s"]) + 1e-8)


def rmsprop_full(p, g, m, t):
    m["s"] = 0.7 * m.get("s", 0.0) + 0.3 * g**2
    m["m"] = 0.7 * m.get("m", 0.0) + 0.3 * g
    m["v"] = 0.6 * m.get("v", 0.0) + g / (np.sqrt(m["s"] - m["m"] ** 2) + 1e-3)
    return p - 0.1 * m["v"]


def adam_direction(g, m, t, eps):
    m["m"] = 0.9 * m.get("m", 0.0) + 0.1 * g
    m["v"] = 0.999 * m.get("v", 0.0) + 0.001 * g**2
    return m["m"] / (1 - 0.9**t) / (np.sqrt(m["v"] / (1 - 0.999**t)) + eps)


def adam(p, g, m, t):
    return p - 0.1 * adam_direction(g + 0.2 * p, m, t, 1e-8)


def adamw(p, g, m, t):
    return p - 0.1 * (adam_direction(g, m, t, 1e-8) + 0.2 * p)


def lamb(p, g, m, t):
    s = adam_direction(g, m, t, 1e-6) + 0.2 * p
    return p - 0.1 * np.linalg.norm(p) / np.linalg.norm(s) * s


def lars(p, g, m, t):
    ratio = 0.02 * np.linalg.norm(p) / (np.linalg.norm(g) + 0.2 * np.linalg.norm(p))
    m["v"] = 0.8 * m.get("v", 0.0) + 0.1 * ratio * (g + 0.2 * p)
    return p - m["v"]


def nadam(p, g, m, t):
    g = g + 0.2 * p
    m["m"] = 0.9 * m.get("m", 0.0) + 0.1 * g
    m["v"] = 0.999 * m.get("v", 0.0) + 0.001 * g**2
    now, then = (0.9 * (1 - 0.5 * 0.96 ** (s * 0.01)) for s in (t, t + 1))
    m["product"] = m.get("product", 1.0) * now
    direction = (1 - now) / (1 - m["product"]) * g
    direction = direction + then / (1 - m["product"] * then) * m["m"]
    return p - 0.1 * direction / (np.sqrt(m["v"] / (1 - 0.999**t)) + 1e-8)


def radam(p, g, m, t):
    g = g + 0.2 * p
    m["m"] = 0.9 * m.get("m", 0.0) + 0.1 * g
    m["v"] = 0.9 * m.get("v", 0.0) + 0.1 * g**2
    limit = 2 / (1 - 0.9) - 1
    length = limit - 2 * t * 0.9**t / (1 - 0.9**t)
    mean = m["m"] / (1 - 0.9**t)
    if length <= 5:
        return p - 0.1 * mean
    ratio = (length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)
    return p - 0.1 * mean * np.sqrt(ratio * (1 - 0.9**t)) / (np.sqrt(m["v"]) + 1e-8)


def lion(p, g, m, t):
    old = m.get("m", 0.0)
    m["m"] = 0.99 * old + 0.01 * g
    return p - 0.1 * (np.sign(0.9 * old + 0.1 * g) + 0.2 * p)


def adafactor(p, g, m, t):
    b = 1 - t**-0.8
    m["v"] = b * m.get("v", 0.0) + (1 - b) * (g**2 + 1e-30)
    u = g / np.sqrt(m["v"])
    u = u / max(1.0, np.sqrt((u**2).mean()) / 0.7)
    return (1 - 0.1 * 0.2) * p - 0.1 * max(1e-3, np.sqrt((p**2).mean())) * u


RULES = {
    "plain": (lambda: opt.GradientDescent(0.1), plain),
    "decay": (lambda: opt.SGD(0.1, weight_decay=0.2), decaying),
    "momentum": (lambda: opt.SGD(0.1, momentum=0.8, weight_decay=0.2), momentum),
    "nesterov": (lambda: opt.SGD(0.1, 0.8, nesterov=True, weight_decay=0.2), nesterov),
    "AdaGrad": (lambda: opt.AdaGrad(0.1, initial=0.3), adagrad),
    "RMSProp": (lambda: opt.RMSProp(0.1, decay=0.7), rmsprop),
    "RMSProp, all options": (
        lambda: opt.RMSProp(0.1, decay=0.7, eps=1e-3, momentum=0.6, centered=True),
        rmsprop_full,
    ),
    "Adam": (lambda: opt.Adam(0.1, weight_decay=0.2), adam),
    "AdamW": (lambda: opt.AdamW(0.1, weight_decay=0.2), adamw),
    "LAMB": (lambda: opt.LAMB(0.1, weight_decay=0.2), lamb),
    "NAdam": (lambda: opt.NAdam(0.1, momentum_decay=0.01, weight_decay=0.2), nadam),
    "RAdam": (lambda: opt.RAdam(0.1, beta2=0.9, weight_decay=0.2), radam),
    "Lion": (lambda: opt.Lion(0.1, weight_decay=0.2), lion),
    "Adafactor": (lambda: opt.Adafactor(0.1, clip_update=0.7, weight_decay=0.2), adafactor),
    "Muon of vectors": (lambda: opt.Muon(0.1, weight_decay=0.2), adamw),
    "LARS": (lambda: opt.LARS(0.1, momentum=0.8, weight_decay=0.2, trust=0.02), lars),
}


def close(result, expected, dtype="float64", scale=10.0):
    """Compare parameters; a few steps of a division by small roots multiply the rounding."""
    for name, right in expected.items():
        table = tolerance(canonical(dtype), "reassoc")
        assert table.close(result[name].value, right, scale), (name, result[name].value, right)
