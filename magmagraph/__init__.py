"""magmagraph: a lazy compute-graph compiler that shows its work.

Build a graph with `var` and the functions below, whose names are NumPy's where NumPy has them;
`function` compiles it, `grad` differentiates it, `optimizer` trains with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import dtypes, init, optimizer, passes, random, schedule
from ._version import __version__
from .autodiff import (
    grad,
    value_and_grad,
    vjp,
)
from .config import (
    config,
)
from .derivatives import (
    hessian,
    jacobian,
    jvp,
)
from .dims import (
    Dim,
)
from .errors import (
    CacheWarning,
    CompilerUnavailable,
    ConfigError,
    DataError,
    DeviceError,
    DivergedError,
    DTypeError,
    FallbackWarning,
    FeedError,
    GradientError,
    GraphError,
    LinAlgError,
    MagmagraphError,
    NonFiniteError,
    PassError,
    PlanError,
    ShapeError,
    UpdateError,
)
from .function import (
    Function,
    function,
    synchronize,
)
from .functional import RECORDS as _COMPOSITES
from .functional import (
    batch_norm,
    batch_statistics,
    dropout,
    layer_norm,
    log_softmax,
    running_statistics,
    softmax,
)
from .gradient_check import (
    GradientReport,
    check_gradients,
)
from .graph import (
    Graph,
    Node,
)
from .inspect.networkx import (
    to_networkx,
)
from .inspect.show import (
    show,
)
from .losses import (
    binary_cross_entropy,
    cross_entropy,
    mse,
)
from .ops import register as _register
from .ops.activation import (
    elu,
    gelu,
    hardtanh,
    leaky_relu,
    mish,
    relu,
    selu,
    sigmoid,
    silu,
    softplus,
)
from .ops.arrange import (
    expand_dims,
    moveaxis,
    ravel,
    reshape,
    squeeze,
    swapaxes,
    transpose,
)
from .ops.bits import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    left_shift,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    right_shift,
)
from .ops.comparison import (
    clip,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    maximum,
    minimum,
    not_equal,
    where,
)
from .ops.contraction import (
    dot,
    inner,
    matmul,
    outer,
    tensordot,
    vdot,
)
from .ops.control import (
    stop_gradient,
)
from .ops.convert import (
    cast,
)
from .ops.differentiation import (
    checkpoint,
    custom_gradient,
)
from .ops.einsum import (
    einsum,
)
from .ops.elementwise import (
    absolute,
    add,
    divide,
    floor_divide,
    multiply,
    negative,
    power,
    reciprocal,
    remainder,
    sign,
    square,
    subtract,
)
from .ops.index import (
    arange,
    argsort,
    one_hot,
    take,
)
from .ops.joining import (
    broadcast_to,
    concatenate,
    stack,
)
from .ops.leaf import (
    Variable,
    constant,
    extent,
    input,
    variable,
)
from .ops.math import (
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    cbrt,
    cos,
    cosh,
    exp,
    exp2,
    expm1,
    hypot,
    log,
    log1p,
    log2,
    log10,
    rsqrt,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from .ops.others import (
    product_of_others,
)
from .ops.pieces import (
    flip,
    pad,
    split,
)
from .ops.reduction import (
    all,
    any,
    argmax,
    argmin,
    max,
    min,
    prod,
    sum,
)
from .ops.rounding import (
    ceil,
    floor,
    isfinite,
    isinf,
    isnan,
    rint,
    round,
    trunc,
)
from .ops.slicing import (
    index,
)
from .ops.special import (
    digamma,
    erf,
    erfc,
    erfinv,
    lgamma,
    polygamma,
    rbf,
    zeta,
)
from .ops.statistics import (
    count_nonzero,
    logsumexp,
    mean,
    norm,
    std,
    variance,
)
from .scipy_objective import (
    ScipyObjective,
    scipy_objective,
)

if TYPE_CHECKING:
    from . import data
    from .archive import load
    from .data import batches

_register(_COMPOSITES)

# Public names whose modules are imported when first asked for: files and archives bring in the
# standard library's decompressors, which a program that only computes never needs.
_LATER = {"batches": "data", "data": "data", "load": "archive"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_LATER[name]}")
    value = module if name == _LATER[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    dunder = [name for name in globals() if name.startswith("__")]
    return sorted({*__all__, *dunder})


abs = absolute
invert = bitwise_not
mod = remainder
pow = power


def var(name: Any, *args: Any, **options: Any) -> Node:
    """Make an input or a variable; with a node or an array first, return its variance.

    Parameters
    ----------
    name
        A string: the name of a new input, or, with ``init=``, of a new variable (see `input`
        and `variable`). A node or an array: what `variance` takes.
    *args, **options
        As those functions take them.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.var("x", shape=("batch", 3))
    <input 'x' float32[batch, 3]>
    >>> mg.var("s", init=5.0).value
    array(5., dtype=float32)
    >>> mg.var(mg.constant([1.0, 3.0])).eval()
    array(1., dtype=float32)
    """
    if not isinstance(name, str):
        return variance(name, *args, **options)
    if "init" in options:
        return variable(name, *args, **options)
    return input(name, *args, **options)


__all__ = [
    "CacheWarning",
    "CompilerUnavailable",
    "ConfigError",
    "DTypeError",
    "DataError",
    "DeviceError",
    "Dim",
    "DivergedError",
    "FallbackWarning",
    "FeedError",
    "Function",
    "GradientError",
    "GradientReport",
    "Graph",
    "GraphError",
    "LinAlgError",
    "MagmagraphError",
    "Node",
    "NonFiniteError",
    "PassError",
    "PlanError",
    "ScipyObjective",
    "ShapeError",
    "UpdateError",
    "Variable",
    "__version__",
    "abs",
    "absolute",
    "add",
    "all",
    "any",
    "arange",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "batch_norm",
    "batch_statistics",
    "batches",
    "binary_cross_entropy",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "cast",
    "cbrt",
    "ceil",
    "check_gradients",
    "checkpoint",
    "clip",
    "concatenate",
    "config",
    "constant",
    "cos",
    "cosh",
    "count_nonzero",
    "cross_entropy",
    "custom_gradient",
    "data",
    "digamma",
    "divide",
    "dot",
    "dropout",
    "dtypes",
    "einsum",
    "elu",
    "equal",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "extent",
    "flip",
    "floor",
    "floor_divide",
    "function",
    "gelu",
    "grad",
    "greater",
    "greater_equal",
    "hardtanh",
    "hessian",
    "hypot",
    "index",
    "init",
    "inner",
    "input",
    "invert",
    "isfinite",
    "isinf",
    "isnan",
    "jacobian",
    "jvp",
    "layer_norm",
    "leaky_relu",
    "left_shift",
    "less",
    "less_equal",
    "lgamma",
    "load",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mish",
    "mod",
    "moveaxis",
    "mse",
    "multiply",
    "negative",
    "norm",
    "not_equal",
    "one_hot",
    "optimizer",
    "outer",
    "pad",
    "passes",
    "polygamma",
    "pow",
    "power",
    "prod",
    "product_of_others",
    "random",
    "ravel",
    "rbf",
    "reciprocal",
    "relu",
    "remainder",
    "reshape",
    "right_shift",
    "rint",
    "round",
    "rsqrt",
    "running_statistics",
    "schedule",
    "scipy_objective",
    "selu",
    "show",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "softmax",
    "softplus",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "stop_gradient",
    "subtract",
    "sum",
    "swapaxes",
    "synchronize",
    "take",
    "tan",
    "tanh",
    "tensordot",
    "to_networkx",
    "transpose",
    "trunc",
    "value_and_grad",
    "var",
    "variable",
    "variance",
    "vdot",
    "vjp",
    "where",
    "zeta",
]
