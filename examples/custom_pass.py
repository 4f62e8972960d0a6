"""A pass of one's own, made of one rule: ``sin(x)**2 + cos(x)**2`` is 1.

A rule is a pattern and a replacement, written with the ordinary operations, and may refuse a
place with a reason; the report shows both.
"""

import numpy as np

import magmagraph as mg
from magmagraph.ops.leaf import constant
from magmagraph.passes.rewriting.pattern import P, wildcards
from magmagraph.passes.rewriting.rewrite import Rule, rewrite, rules_by_operation

x, y = wildcards("x y")


def one(match):
    """Return a one of the matched shape."""
    return mg.broadcast_to(constant(1.0, match.root.dtype), match.root.shape)


def same_angle(match):
    """Return why the place is not the identity, or None."""
    return None if match.x is match.y else "the two angles are different nodes"


RULES = rules_by_operation(
    [Rule("Pythagoras", P.power(P.sin(x), 2) + P.power(P.cos(y), 2), one, check=same_angle)]
)


def pythagoras(graph, trace, options):
    """Apply the rule until it applies nowhere; the same graph is returned where it never did."""
    return rewrite(graph, RULES, trace, options, "pythagoras")


own = mg.passes.Pass(
    "pythagoras", pythagoras, True, "stable", "before simplify, which rewrites squares"
)
first, *others = mg.passes.default()

a, b = mg.var("a", shape=("n",)), mg.var("b", shape=("n",))
outputs = [mg.sin(a) ** 2 + mg.cos(a) ** 2 + b, mg.sin(a) ** 2 + mg.cos(b) ** 2]
plain = mg.function([a, b], outputs)
better = mg.function([a, b], outputs, passes=(first, own, *others))

values = np.random.default_rng(0).standard_normal((2, 5)).astype("f4")
for left, right in zip(plain(*values), better(*values), strict=True):
    assert np.allclose(left, right, rtol=1e-6, atol=1e-6)
print(better.report)
