"""The table of ONNX's operators: a row for each, which gives its rule.

An operator without a row that ONNX defines by others is replaced by these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .control import CONTROL
from .elementwise import ELEMENTWISE
from .networks import NETWORKS
from .operator import Rule
from .recurrent import RECURRENT
from .reductions import REDUCTIONS
from .sampling import SAMPLING
from .shapes import SHAPES
from .updates import FEATURES, FEATURES_DOMAIN, UPDATES, UPDATES_DOMAIN
from .windows import WINDOWS

__all__ = ["FAMILIES", "OPERATORS", "STATISTICS"]

FAMILIES: Mapping[str, Mapping[str, Rule]] = {
    "Elementwise": ELEMENTWISE,
    "Reductions and order": REDUCTIONS,
    "Shapes and positions": SHAPES,
    "Convolutions and pooling": WINDOWS,
    "Products, normalization, quantization, transforms": NETWORKS,
    "Recurrent layers": RECURRENT,
    "Sampling": SAMPLING,
    "Control flow and sequences": CONTROL,
    f"Updates of optimizers (`{UPDATES_DOMAIN}`)": UPDATES,
    f"Features (`{FEATURES_DOMAIN}`)": FEATURES,
}
_DOMAINS = ((UPDATES, UPDATES_DOMAIN), (FEATURES, FEATURES_DOMAIN))  # all others are of ONNX's own
# (domain, operator) -> its rule.
OPERATORS: Mapping[tuple[str, str], Rule] = {
    (next((domain for other, domain in _DOMAINS if other is rules), ""), name): rule
    for rules in FAMILIES.values()
    for name, rule in rules.items()
}
# Operands that are running statistics: training does not change them.
STATISTICS: Mapping[str, Sequence[int]] = {"BatchNormalization": (3, 4)}
