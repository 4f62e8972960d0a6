"""magmagraph: a lazy compute-graph compiler that shows its work.

Build a graph with `var` and the functions below, whose names are NumPy's where NumPy has them;
`function` compiles it, `grad` differentiates it, `optimizer` trains with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import (
    distributed,
    dtypes,
    fft,
    init,
    linalg,
    optimizer,
    passes,
    random,
    schedule,
    special,
)
from ._version import __version__
from .checks import debug
from .config import (
    config,
)
from .defaults import (
    default_updates,
    stateful,
)
from .dims import (
    Dim,
)
from .errors import (
    ArgumentError,
    CacheWarning,
    CheckError,
    CommunicationError,
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
    MissingFileError,
    MissingLibraryError,
    NonFiniteError,
    PassError,
    PlanError,
    ReentrantError,
    ShapeError,
    ShardingError,
    StorageError,
    UpdateError,
)
from .function import (
    Function,
    function,
    synchronize,
)
from .function import evaluation as _evaluation  # noqa: F401  it defines Node.eval
from .function.substitute import (
    substitute,
)
from .functional import RECORDS as _COMPOSITES
from .functional import (
    alpha_dropout,
    batch_norm,
    batch_statistics,
    dropout,
    group_norm,
    gumbel_softmax,
    instance_norm,
    layer_norm,
    local_response_norm,
    log_softmax,
    logmeanexp,
    normalize,
    rms_norm,
    running_statistics,
    softmax,
    softmin,
    spatial_dropout,
    standardize,
)
from .gradients.autodiff import (
    grad,
    value_and_grad,
    vjp,
)
from .gradients.derivatives import (
    hessian,
    hvp,
    jacobian,
    jvp,
)
from .gradients.implicit import (
    FixedPoint,
    fixed_point,
    root,
)
from .graph import (
    Graph,
    Node,
)
from .launchers import label_errors as _label_errors
from .losses import (
    binary_cross_entropy,
    cosine_embedding_loss,
    cosine_similarity,
    cross_entropy,
    dice_loss,
    focal_loss,
    gaussian_nll,
    hinge,
    huber,
    info_nce,
    kl_divergence,
    log_cosh,
    mae,
    margin_ranking_loss,
    mse,
    multi_margin,
    nll_loss,
    poisson_nll,
    smooth_l1,
    smooth_labels,
    squared_hinge,
    triplet_margin_loss,
)
from .ops import register as _register
from .ops.control.differentiation import (
    checkpoint,
    checkpoint_name,
    custom_gradient,
)
from .ops.control.identities import (
    stop_gradient,
)
from .ops.convert import (
    cast,
)
from .ops.convolution.functions import (
    conv,
    conv1d,
    conv2d,
    conv3d,
)
from .ops.convolution.transpose import (
    conv1d_transpose,
    conv2d_transpose,
    conv3d_transpose,
    conv_transpose,
)
from .ops.elementwise.arithmetic import (
    add,
    divide,
    floor_divide,
    multiply,
    negative,
    reciprocal,
    remainder,
    square,
    subtract,
)
from .ops.elementwise.bits import (
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
from .ops.elementwise.closeness import (
    allclose,
    array_equal,
    array_equiv,
    isclose,
)
from .ops.elementwise.comparison import (
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
from .ops.elementwise.complex_numbers import complex, conj, imag, iscomplex, isreal, real
from .ops.elementwise.exponents import (
    float_power,
    frexp,
    ldexp,
    logaddexp,
    logaddexp2,
)
from .ops.elementwise.math import (
    angle,
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
    power,
    rsqrt,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from .ops.elementwise.not_finite import (
    fmax,
    fmin,
    isneginf,
    isposinf,
    nan_to_num,
)
from .ops.elementwise.numbers import (
    deg2rad,
    divmod,
    fmod,
    gcd,
    lcm,
    modf,
    rad2deg,
    sinc,
)
from .ops.elementwise.polynomials import (
    polyval,
    vander,
)
from .ops.elementwise.rounding import (
    ceil,
    floor,
    isfinite,
    isinf,
    isnan,
    rint,
    round,
    trunc,
)
from .ops.elementwise.signs import (
    absolute,
    copysign,
    heaviside,
    nextafter,
    positive,
    sign,
    signbit,
)
from .ops.indexing.choosing import (
    choose,
    select,
)
from .ops.indexing.finding import (
    argwhere,
    flatnonzero,
    nonzero,
)
from .ops.indexing.gathering import (
    take,
    take_along_axis,
)
from .ops.indexing.interpolation import (
    interp,
)
from .ops.indexing.iota import (
    arange,
    one_hot,
)
from .ops.indexing.keys import index
from .ops.indexing.raveling import (
    ix_,
    ravel_multi_index,
    unravel_index,
)
from .ops.indexing.selecting import (
    boolean_index,
    compress,
    extract,
    isin,
)
from .ops.indexing.sets import (
    intersect1d,
    setdiff1d,
    setxor1d,
    union1d,
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from .ops.indexing.sorting import (
    argsort,
    digitize,
    lexsort,
    searchsorted,
    sort,
    top_k,
)
from .ops.indexing.updates import (
    index_update,
    put_along_axis,
)
from .ops.leaf import (
    Variable,
    constant,
    extent,
    input,
    variable,
)
from .ops.linalg.products import (
    kron,
    vecdot,
)
from .ops.linalg.traces import (
    matrix_transpose,
)
from .ops.networks.activation import (
    log1mexp,
    log_sigmoid,
    relu,
    sigmoid,
    softplus,
)
from .ops.networks.attention import (
    scaled_dot_product_attention,
)
from .ops.networks.ctc import (
    ctc_loss,
)
from .ops.networks.embedding import (
    embedding,
)
from .ops.networks.exponential_units import (
    celu,
    elu,
    selu,
    softsign,
    squareplus,
    tanhshrink,
)
from .ops.networks.gelu import (
    gelu,
    mish,
    silu,
)
from .ops.networks.masks import (
    causal_mask,
    padding_mask,
)
from .ops.networks.piecewise import (
    hard_sigmoid,
    hard_silu,
    hardshrink,
    relu6,
    softshrink,
    sparse_plus,
    sparse_sigmoid,
    threshold,
)
from .ops.networks.positions import (
    apply_rotary,
    positional_encoding,
)
from .ops.networks.slopes import (
    glu,
    hardtanh,
    leaky_relu,
    prelu,
)
from .ops.products.contraction import (
    dot,
    inner,
    matmul,
    outer,
    tensordot,
    vdot,
)
from .ops.products.einsum import (
    einsum,
)
from .ops.random.order import shape_first as _shape_first
from .ops.reduction.calculus import (
    cross,
    diff,
    ediff1d,
    gradient,
    trapezoid,
    unwrap,
)
from .ops.reduction.cumulative import (
    cumlogsumexp,
    cummax,
    cummin,
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
)
from .ops.reduction.deviations import (
    std,
    variance,
)
from .ops.reduction.histogram import (
    bincount,
    histogram,
    histogram2d,
    histogram_bin_edges,
)
from .ops.reduction.nan_statistics import (
    nanargmax,
    nanargmin,
    nancumprod,
    nancumsum,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
)
from .ops.reduction.others import (
    product_of_others,
)
from .ops.reduction.primitives import (
    all,
    any,
    argmax,
    argmin,
    max,
    min,
    prod,
    sum,
)
from .ops.reduction.quantiles import (
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)
from .ops.reduction.recurrence import (
    linear_recurrence,
)
from .ops.reduction.spread import (
    average,
    corrcoef,
    cov,
    ptp,
)
from .ops.reduction.statistics import (
    count_nonzero,
    logsumexp,
    mean,
    norm,
)
from .ops.shape.arrange import (
    expand_dims,
    moveaxis,
    ravel,
    reshape,
    squeeze,
    swapaxes,
    transpose,
)
from .ops.shape.assembly import (
    array_split,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block,
    broadcast_arrays,
    column_stack,
    dsplit,
    dstack,
    hsplit,
    hstack,
    unstack,
    vsplit,
    vstack,
)
from .ops.shape.creation import (
    eye,
    full,
    full_like,
    identity,
    ones,
    ones_like,
    tri,
    zeros,
    zeros_like,
)
from .ops.shape.diagonal import (
    diag,
    diag_indices,
    diagflat,
    diagonal,
    fill_diagonal,
    trace,
    tril,
    tril_indices,
    triu,
    triu_indices,
)
from .ops.shape.editing import (
    append,
    delete,
    insert,
)
from .ops.shape.grids import (
    indices,
    meshgrid,
)
from .ops.shape.joining import (
    broadcast_to,
    concatenate,
    stack,
)
from .ops.shape.padding import (
    pad,
)
from .ops.shape.pieces import (
    flip,
    split,
)
from .ops.shape.spacing import (
    geomspace,
    linspace,
    logspace,
)
from .ops.shape.tiling import (
    fliplr,
    flipud,
    repeat,
    roll,
    rot90,
    sliding_window_view,
    tile,
)
from .ops.signal.convolve import (
    convolve,
    correlate,
)
from .ops.signal.windows import (
    bartlett,
    blackman,
    hamming,
    hanning,
    kaiser,
)
from .ops.spatial.patches import (
    fold,
    unfold,
)
from .ops.spatial.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from .ops.spatial.pooling_grid import (
    adaptive_avg_pool,
    adaptive_max_pool,
    global_avg_pool,
    global_max_pool,
)
from .ops.spatial.resize import (
    pixel_shuffle,
    pixel_unshuffle,
    resize,
)
from .ops.special.primitives import (
    digamma,
    erf,
    erfc,
    erfinv,
    lgamma,
    polygamma,
    rbf,
    zeta,
)
from .scipy_objective import (
    ScipyObjective,
    scipy_objective,
)
from .scope import (
    scope,
)
from .standard import (
    acos,
    acosh,
    asarray,
    asin,
    asinh,
    astype,
    atan,
    atan2,
    atanh,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_right_shift,
    can_cast,
    concat,
    e,
    empty,
    empty_like,
    finfo,
    from_dlpack,
    iinfo,
    inf,
    isdtype,
    nan,
    newaxis,
    permute_dims,
    pi,
    result_type,
)
from .standard import namespace_info as __array_namespace_info__  # noqa: F401
from .telling import tell as _tell
from .telling import tell_classes as _tell_classes
from .transforms.branching import (
    cond,
    switch,
)
from .transforms.scanning import (
    scan,
    while_loop,
)
from .transforms.subgraph import (
    op_from_graph,
)
from .transforms.vmap import (
    vmap,
)
from .types import (
    Type,
)

if TYPE_CHECKING:
    from . import callbacks, data, metrics, nn, regularize, tune, workflow
    from .checks.gradient_check import GradientReport, check_gradients
    from .checks.operation_check import check_operation
    from .custom import Operation
    from .data import batches
    from .function.loading import load
    from .inspect.networkx import to_networkx
    from .inspect.onnx_export import to_onnx
    from .inspect.show import show
    from .model import Model, NeuralNetwork
    from .values.tensor import Tensor

_register(_COMPOSITES)

# Public names whose modules are imported when first asked for: what a program that only computes
# never needs. Files and archives bring in the standard library's decompressors, too.
_LATER = {
    "GradientReport": "checks.gradient_check",
    "Model": "model",
    "NeuralNetwork": "model",
    "Operation": "custom",
    "Tensor": "values.tensor",
    "batches": "data",
    "callbacks": "callbacks",
    "check_gradients": "checks.gradient_check",
    "check_operation": "checks.operation_check",
    "data": "data",
    "load": "function.loading",
    "metrics": "metrics",
    "nn": "nn",
    "regularize": "regularize",
    "show": "inspect.show",
    "to_networkx": "inspect.networkx",
    "to_onnx": "inspect.onnx_export",
    "tune": "tune",
    "workflow": "workflow",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise import_module(".spellings", __name__).missing(__name__, name)
    module = import_module(f"{__name__}.{_LATER[name]}")
    value = module if name == _LATER[name] else getattr(module, name)
    globals()[name] = value
    _tell(globals(), (name,))
    _tell_classes(globals(), (name,))
    return globals()[name]


def __dir__() -> list[str]:
    dunder = [name for name in globals() if name.startswith("__")]
    return sorted({*__all__, *dunder})


# The dtypes by their names.
bfloat16, float16 = map(dtypes.canonical, ("bfloat16", "float16"))
float32, float64 = map(dtypes.canonical, ("float32", "float64"))
complex64, complex128 = map(dtypes.canonical, ("complex64", "complex128"))
int8, int16, int32, int64 = map(dtypes.canonical, ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = map(dtypes.canonical, ("uint8", "uint16", "uint32", "uint64"))
bool = dtypes.canonical("bool")

abs = absolute
conjugate = conj
hard_swish = hard_silu
interpolate = resize
invert = bitwise_not
l1_loss = mae
mod = remainder
pow = power
swish = silu


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
    "ArgumentError",
    "CacheWarning",
    "CheckError",
    "CommunicationError",
    "CompilerUnavailable",
    "ConfigError",
    "DTypeError",
    "DataError",
    "DeviceError",
    "Dim",
    "DivergedError",
    "FallbackWarning",
    "FeedError",
    "FixedPoint",
    "Function",
    "GradientError",
    "GradientReport",
    "Graph",
    "GraphError",
    "LinAlgError",
    "MagmagraphError",
    "MissingFileError",
    "MissingLibraryError",
    "Model",
    "NeuralNetwork",
    "Node",
    "NonFiniteError",
    "Operation",
    "PassError",
    "PlanError",
    "ReentrantError",
    "ScipyObjective",
    "ShapeError",
    "ShardingError",
    "StorageError",
    "Tensor",
    "Type",
    "UpdateError",
    "Variable",
    "__version__",
    "abs",
    "absolute",
    "acos",
    "acosh",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "add",
    "all",
    "allclose",
    "alpha_dropout",
    "angle",
    "any",
    "append",
    "apply_rotary",
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
    "argwhere",
    "array_equal",
    "array_equiv",
    "array_split",
    "asarray",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "average",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "bartlett",
    "batch_norm",
    "batch_statistics",
    "batches",
    "bfloat16",
    "binary_cross_entropy",
    "bincount",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "blackman",
    "block",
    "bool",
    "boolean_index",
    "broadcast_arrays",
    "broadcast_to",
    "callbacks",
    "can_cast",
    "cast",
    "causal_mask",
    "cbrt",
    "ceil",
    "celu",
    "check_gradients",
    "check_operation",
    "checkpoint",
    "checkpoint_name",
    "choose",
    "clip",
    "column_stack",
    "complex",
    "complex128",
    "complex64",
    "compress",
    "concat",
    "concatenate",
    "cond",
    "config",
    "conj",
    "conjugate",
    "constant",
    "conv",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "conv_transpose",
    "convolve",
    "copysign",
    "corrcoef",
    "correlate",
    "cos",
    "cosh",
    "cosine_embedding_loss",
    "cosine_similarity",
    "count_nonzero",
    "cov",
    "cross",
    "cross_entropy",
    "ctc_loss",
    "cumlogsumexp",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "custom_gradient",
    "data",
    "debug",
    "default_updates",
    "deg2rad",
    "delete",
    "diag",
    "diag_indices",
    "diagflat",
    "diagonal",
    "dice_loss",
    "diff",
    "digamma",
    "digitize",
    "distributed",
    "divide",
    "divmod",
    "dot",
    "dropout",
    "dsplit",
    "dstack",
    "dtypes",
    "e",
    "ediff1d",
    "einsum",
    "elu",
    "embedding",
    "empty",
    "empty_like",
    "equal",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "extent",
    "extract",
    "eye",
    "fft",
    "fill_diagonal",
    "finfo",
    "fixed_point",
    "flatnonzero",
    "flip",
    "fliplr",
    "flipud",
    "float16",
    "float32",
    "float64",
    "float_power",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "focal_loss",
    "fold",
    "frexp",
    "from_dlpack",
    "full",
    "full_like",
    "function",
    "gaussian_nll",
    "gcd",
    "gelu",
    "geomspace",
    "global_avg_pool",
    "global_max_pool",
    "glu",
    "grad",
    "gradient",
    "greater",
    "greater_equal",
    "group_norm",
    "gumbel_softmax",
    "hamming",
    "hanning",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hardshrink",
    "hardtanh",
    "heaviside",
    "hessian",
    "hinge",
    "histogram",
    "histogram2d",
    "histogram_bin_edges",
    "hsplit",
    "hstack",
    "huber",
    "hvp",
    "hypot",
    "identity",
    "iinfo",
    "imag",
    "index",
    "index_update",
    "indices",
    "inf",
    "info_nce",
    "init",
    "inner",
    "input",
    "insert",
    "instance_norm",
    "int16",
    "int32",
    "int64",
    "int8",
    "interp",
    "interpolate",
    "intersect1d",
    "invert",
    "isclose",
    "iscomplex",
    "isdtype",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "ix_",
    "jacobian",
    "jvp",
    "kaiser",
    "kl_divergence",
    "kron",
    "l1_loss",
    "layer_norm",
    "lcm",
    "ldexp",
    "leaky_relu",
    "left_shift",
    "less",
    "less_equal",
    "lexsort",
    "lgamma",
    "linalg",
    "linear_recurrence",
    "linspace",
    "load",
    "local_response_norm",
    "log",
    "log10",
    "log1mexp",
    "log1p",
    "log2",
    "log_cosh",
    "log_sigmoid",
    "log_softmax",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logmeanexp",
    "logspace",
    "logsumexp",
    "mae",
    "margin_ranking_loss",
    "matmul",
    "matrix_transpose",
    "max",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "maximum",
    "mean",
    "median",
    "meshgrid",
    "metrics",
    "min",
    "minimum",
    "mish",
    "mod",
    "modf",
    "moveaxis",
    "mse",
    "multi_margin",
    "multiply",
    "nan",
    "nan_to_num",
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanpercentile",
    "nanprod",
    "nanquantile",
    "nanstd",
    "nansum",
    "nanvar",
    "negative",
    "newaxis",
    "nextafter",
    "nll_loss",
    "nn",
    "nonzero",
    "norm",
    "normalize",
    "not_equal",
    "one_hot",
    "ones",
    "ones_like",
    "op_from_graph",
    "optimizer",
    "outer",
    "pad",
    "padding_mask",
    "passes",
    "percentile",
    "permute_dims",
    "pi",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll",
    "polygamma",
    "polyval",
    "positional_encoding",
    "positive",
    "pow",
    "power",
    "prelu",
    "prod",
    "product_of_others",
    "ptp",
    "put_along_axis",
    "quantile",
    "rad2deg",
    "random",
    "ravel",
    "ravel_multi_index",
    "rbf",
    "real",
    "reciprocal",
    "regularize",
    "relu",
    "relu6",
    "remainder",
    "repeat",
    "reshape",
    "resize",
    "result_type",
    "right_shift",
    "rint",
    "rms_norm",
    "roll",
    "root",
    "rot90",
    "round",
    "rsqrt",
    "running_statistics",
    "scaled_dot_product_attention",
    "scan",
    "schedule",
    "scipy_objective",
    "scope",
    "searchsorted",
    "select",
    "selu",
    "setdiff1d",
    "setxor1d",
    "show",
    "sigmoid",
    "sign",
    "signbit",
    "silu",
    "sin",
    "sinc",
    "sinh",
    "sliding_window_view",
    "smooth_l1",
    "smooth_labels",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "sort",
    "sparse_plus",
    "sparse_sigmoid",
    "spatial_dropout",
    "special",
    "split",
    "sqrt",
    "square",
    "squared_hinge",
    "squareplus",
    "squeeze",
    "stack",
    "standardize",
    "stateful",
    "std",
    "stop_gradient",
    "substitute",
    "subtract",
    "sum",
    "swapaxes",
    "swish",
    "switch",
    "synchronize",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tanhshrink",
    "tensordot",
    "threshold",
    "tile",
    "to_networkx",
    "to_onnx",
    "top_k",
    "trace",
    "transpose",
    "trapezoid",
    "tri",
    "tril",
    "tril_indices",
    "triplet_margin_loss",
    "triu",
    "triu_indices",
    "trunc",
    "tune",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "unfold",
    "union1d",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unravel_index",
    "unstack",
    "unwrap",
    "value_and_grad",
    "vander",
    "var",
    "variable",
    "variance",
    "vdot",
    "vecdot",
    "vjp",
    "vmap",
    "vsplit",
    "vstack",
    "where",
    "while_loop",
    "workflow",
    "zeros",
    "zeros_like",
    "zeta",
]

# What users call explains why arguments do not fit; modules here call each other without that.
_tell(globals(), __all__)
for _module in (
    linalg, fft, special, init, optimizer, schedule, distributed, debug, passes, dtypes
):  # fmt: skip
    _tell(vars(_module), _module.__all__)
_tell(vars(random), random.__all__, _shape_first)
for _module in (distributed, schedule, passes):
    _tell_classes(vars(_module), _module.__all__)
_tell_classes(globals(), ("Function", "Graph"))
del _module

_label_errors()  # of a process that mpiexec has started as one of several
