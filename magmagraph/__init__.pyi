# Made by docs/build.py from the code: change it there, then run `make docs`.
from typing import Any as _Any
from numpy import dtype as _dtype
from . import (
    callbacks as callbacks, data as data, distributed as distributed, dtypes as dtypes, fft as fft,
    init as init, linalg as linalg, loggers as loggers, metrics as metrics, nn as nn,
    optimizer as optimizer, passes as passes, random as random, regularize as regularize,
    schedule as schedule, special as special, tune as tune, workflow as workflow,
)
from ._version import (
    __version__ as __version__,
)
from .autodiff.autodiff import (
    vjp as vjp,
)
from .autodiff.derivatives import (
    hessian as hessian, hvp as hvp, jacobian as jacobian, jvp as jvp,
)
from .autodiff.implicit import (
    FixedPoint as FixedPoint, fixed_point as fixed_point, root as root,
)
from .autodiff.transforms.branching import (
    cond as cond, switch as switch,
)
from .autodiff.transforms.scanning import (
    scan as scan, while_loop as while_loop,
)
from .autodiff.transforms.subgraph import (
    op_from_graph as op_from_graph,
)
from .autodiff.transforms.vmap import (
    vmap as vmap,
)
from .checks import (
    debug as debug,
)
from .checks.gradient_check import (
    GradientReport as GradientReport, check_gradients as check_gradients,
)
from .checks.operation_check import (
    check_operation as check_operation,
)
from .config import (
    config as config,
)
from .data import (
    batches as batches,
)
from .errors import (
    ArgumentError as ArgumentError, BroadcastWarning as BroadcastWarning,
    CacheWarning as CacheWarning, CheckError as CheckError,
    CommunicationError as CommunicationError, CompilerUnavailable as CompilerUnavailable,
    ConfigError as ConfigError, DTypeError as DTypeError, DataError as DataError,
    DeviceError as DeviceError, DivergedError as DivergedError, ExportError as ExportError,
    FallbackWarning as FallbackWarning, FeedError as FeedError, GradientError as GradientError,
    GraphError as GraphError, LinAlgError as LinAlgError, MagmagraphError as MagmagraphError,
    MemoryLimitError as MemoryLimitError, MissingFileError as MissingFileError,
    MissingLibraryError as MissingLibraryError, NonFiniteError as NonFiniteError,
    OnnxError as OnnxError, OnnxRuleError as OnnxRuleError, PassError as PassError,
    PlanError as PlanError, RanksWarning as RanksWarning, ReentrantError as ReentrantError,
    ShapeError as ShapeError, ShardingError as ShardingError, StorageError as StorageError,
    UpdateError as UpdateError,
)
from .function import (
    Function as Function, function as function, synchronize as synchronize,
)
from .function.defaults import (
    default_updates as default_updates, stateful as stateful,
)
from .function.loading import (
    load as load,
)
from .function.substitute import (
    substitute as substitute,
)
from .function.tensor import (
    Tensor as Tensor,
)
from .function.tracing import (
    grad as grad, jit as jit, value_and_grad as value_and_grad,
)
from .functional import (
    alpha_dropout as alpha_dropout, batch_norm as batch_norm, batch_statistics as batch_statistics,
    dropout as dropout, group_norm as group_norm, gumbel_softmax as gumbel_softmax,
    instance_norm as instance_norm, layer_norm as layer_norm,
    local_response_norm as local_response_norm, log_softmax as log_softmax,
    logmeanexp as logmeanexp, normalize as normalize, rms_norm as rms_norm,
    running_statistics as running_statistics, softmax as softmax, softmin as softmin,
    spatial_dropout as spatial_dropout, standardize as standardize,
)
from .functional.custom import (
    Operation as Operation,
)
from .functional.standard import (
    namespace_info as __array_namespace_info__, acos as acos, acosh as acosh, asarray as asarray,
    asin as asin, asinh as asinh, astype as astype, atan as atan, atan2 as atan2, atanh as atanh,
    bitwise_invert as bitwise_invert, bitwise_left_shift as bitwise_left_shift,
    bitwise_right_shift as bitwise_right_shift, can_cast as can_cast, concat as concat, e as e,
    empty as empty, empty_like as empty_like, finfo as finfo, from_dlpack as from_dlpack,
    iinfo as iinfo, inf as inf, isdtype as isdtype, nan as nan, newaxis as newaxis,
    permute_dims as permute_dims, pi as pi, result_type as result_type, var as var,
)
from .inspect.networkx import (
    to_networkx as to_networkx,
)
from .inspect.onnx_export import (
    to_onnx as to_onnx,
)
from .inspect.show import (
    show as show,
)
from .interchange.onnx.importer import (
    from_onnx as from_onnx,
)
from .interchange.torch.importer import (
    from_torch as from_torch,
)
from .ir.dims import (
    Dim as Dim,
)
from .ir.graph import (
    Graph as Graph, Node as Node,
)
from .ir.scope import (
    scope as scope,
)
from .ir.target import (
    Target as Target,
)
from .ir.types import (
    Type as Type,
)
from .losses import (
    binary_cross_entropy as binary_cross_entropy, cosine_embedding_loss as cosine_embedding_loss,
    cosine_similarity as cosine_similarity, cross_entropy as cross_entropy, dice_loss as dice_loss,
    focal_loss as focal_loss, gaussian_nll as gaussian_nll, hinge as hinge, huber as huber,
    info_nce as info_nce, kl_divergence as kl_divergence, mae as l1_loss, log_cosh as log_cosh,
    mae as mae, margin_ranking_loss as margin_ranking_loss, mse as mse,
    multi_margin as multi_margin, nll_loss as nll_loss, poisson_nll as poisson_nll,
    smooth_l1 as smooth_l1, smooth_labels as smooth_labels, squared_hinge as squared_hinge,
    triplet_margin_loss as triplet_margin_loss,
)
from .model import (
    Model as Model, NeuralNetwork as NeuralNetwork,
)
from .model.generation import (
    generate as generate,
)
from .ops.control.differentiation import (
    checkpoint as checkpoint, checkpoint_name as checkpoint_name,
    custom_gradient as custom_gradient,
)
from .ops.control.identities import (
    stop_gradient as stop_gradient,
)
from .ops.convert import (
    cast as cast,
)
from .ops.convolution.functions import (
    conv as conv, conv1d as conv1d, conv2d as conv2d, conv3d as conv3d,
)
from .ops.convolution.transpose import (
    conv1d_transpose as conv1d_transpose, conv2d_transpose as conv2d_transpose,
    conv3d_transpose as conv3d_transpose, conv_transpose as conv_transpose,
)
from .ops.elementwise.arithmetic import (
    add as add, divide as divide, floor_divide as floor_divide, remainder as mod,
    multiply as multiply, negative as negative, reciprocal as reciprocal, remainder as remainder,
    square as square, subtract as subtract,
)
from .ops.elementwise.bits import (
    bitwise_and as bitwise_and, bitwise_not as bitwise_not, bitwise_or as bitwise_or,
    bitwise_xor as bitwise_xor, bitwise_not as invert, left_shift as left_shift,
    logical_and as logical_and, logical_not as logical_not, logical_or as logical_or,
    logical_xor as logical_xor, right_shift as right_shift,
)
from .ops.elementwise.closeness import (
    allclose as allclose, array_equal as array_equal, array_equiv as array_equiv,
    isclose as isclose,
)
from .ops.elementwise.comparison import (
    clip as clip, equal as equal, greater as greater, greater_equal as greater_equal, less as less,
    less_equal as less_equal, maximum as maximum, minimum as minimum, not_equal as not_equal,
    where as where,
)
from .ops.elementwise.complex_numbers import (
    complex as complex, conj as conj, conj as conjugate, imag as imag, iscomplex as iscomplex,
    isreal as isreal, real as real,
)
from .ops.elementwise.exponents import (
    float_power as float_power, frexp as frexp, ldexp as ldexp, logaddexp as logaddexp,
    logaddexp2 as logaddexp2,
)
from .ops.elementwise.math import (
    angle as angle, arccos as arccos, arccosh as arccosh, arcsin as arcsin, arcsinh as arcsinh,
    arctan as arctan, arctan2 as arctan2, arctanh as arctanh, cbrt as cbrt, cos as cos,
    cosh as cosh, exp as exp, exp2 as exp2, expm1 as expm1, hypot as hypot, log as log,
    log10 as log10, log1p as log1p, log2 as log2, power as pow, power as power, rsqrt as rsqrt,
    sin as sin, sinh as sinh, sqrt as sqrt, tan as tan, tanh as tanh,
)
from .ops.elementwise.not_finite import (
    fmax as fmax, fmin as fmin, isneginf as isneginf, isposinf as isposinf,
    nan_to_num as nan_to_num,
)
from .ops.elementwise.numbers import (
    deg2rad as deg2rad, divmod as divmod, fmod as fmod, gcd as gcd, lcm as lcm, modf as modf,
    rad2deg as rad2deg, sinc as sinc,
)
from .ops.elementwise.polynomials import (
    polyval as polyval, vander as vander,
)
from .ops.elementwise.quantization import (
    dequantize as dequantize, quantize as quantize,
)
from .ops.elementwise.rounding import (
    ceil as ceil, floor as floor, isfinite as isfinite, isinf as isinf, isnan as isnan,
    rint as rint, round as round, trunc as trunc,
)
from .ops.elementwise.signs import (
    absolute as abs, absolute as absolute, copysign as copysign, heaviside as heaviside,
    nextafter as nextafter, positive as positive, sign as sign, signbit as signbit,
)
from .ops.indexing.choosing import (
    choose as choose, select as select,
)
from .ops.indexing.finding import (
    argwhere as argwhere, flatnonzero as flatnonzero, nonzero as nonzero,
)
from .ops.indexing.gathering import (
    take as take, take_along_axis as take_along_axis,
)
from .ops.indexing.interpolation import (
    interp as interp,
)
from .ops.indexing.iota import (
    arange as arange, one_hot as one_hot,
)
from .ops.indexing.keys import (
    index as index,
)
from .ops.indexing.raveling import (
    ix_ as ix_, ravel_multi_index as ravel_multi_index, unravel_index as unravel_index,
)
from .ops.indexing.selecting import (
    boolean_index as boolean_index, compress as compress, extract as extract, isin as isin,
)
from .ops.indexing.sets import (
    intersect1d as intersect1d, setdiff1d as setdiff1d, setxor1d as setxor1d, union1d as union1d,
    unique as unique, unique_all as unique_all, unique_counts as unique_counts,
    unique_inverse as unique_inverse, unique_values as unique_values,
)
from .ops.indexing.sorting import (
    argsort as argsort, digitize as digitize, lexsort as lexsort, searchsorted as searchsorted,
    sort as sort, top_k as top_k,
)
from .ops.indexing.updates import (
    index_update as index_update, put_along_axis as put_along_axis,
)
from .ops.leaf import (
    Variable as Variable, constant as constant, extent as extent, input as input,
    variable as variable,
)
from .ops.linalg.products import (
    kron as kron, vecdot as vecdot,
)
from .ops.linalg.traces import (
    matrix_transpose as matrix_transpose,
)
from .ops.networks.activation import (
    log1mexp as log1mexp, log_sigmoid as log_sigmoid, relu as relu, sigmoid as sigmoid,
    softplus as softplus,
)
from .ops.networks.attention import (
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from .ops.networks.ctc import (
    ctc_loss as ctc_loss,
)
from .ops.networks.embedding import (
    embedding as embedding,
)
from .ops.networks.exponential_units import (
    celu as celu, elu as elu, selu as selu, softsign as softsign, squareplus as squareplus,
    tanhshrink as tanhshrink,
)
from .ops.networks.gelu import (
    gelu as gelu, mish as mish, silu as silu, silu as swish,
)
from .ops.networks.masks import (
    causal_mask as causal_mask, padding_mask as padding_mask,
)
from .ops.networks.piecewise import (
    hard_sigmoid as hard_sigmoid, hard_silu as hard_silu, hard_silu as hard_swish,
    hardshrink as hardshrink, relu6 as relu6, softshrink as softshrink, sparse_plus as sparse_plus,
    sparse_sigmoid as sparse_sigmoid, threshold as threshold,
)
from .ops.networks.positions import (
    apply_rotary as apply_rotary, positional_encoding as positional_encoding,
)
from .ops.networks.slopes import (
    glu as glu, hardtanh as hardtanh, leaky_relu as leaky_relu, prelu as prelu,
)
from .ops.products.contraction import (
    dot as dot, inner as inner, matmul as matmul, outer as outer, tensordot as tensordot,
    vdot as vdot,
)
from .ops.products.einsum import (
    einsum as einsum,
)
from .ops.reduction.calculus import (
    cross as cross, diff as diff, ediff1d as ediff1d, gradient as gradient, trapezoid as trapezoid,
    unwrap as unwrap,
)
from .ops.reduction.cumulative import (
    cumlogsumexp as cumlogsumexp, cummax as cummax, cummin as cummin, cumprod as cumprod,
    cumsum as cumsum, cumulative_prod as cumulative_prod, cumulative_sum as cumulative_sum,
)
from .ops.reduction.deviations import (
    std as std, variance as variance,
)
from .ops.reduction.histogram import (
    bincount as bincount, histogram as histogram, histogram2d as histogram2d,
    histogram_bin_edges as histogram_bin_edges,
)
from .ops.reduction.nan_statistics import (
    nanargmax as nanargmax, nanargmin as nanargmin, nancumprod as nancumprod,
    nancumsum as nancumsum, nanmax as nanmax, nanmean as nanmean, nanmin as nanmin,
    nanprod as nanprod, nanstd as nanstd, nansum as nansum, nanvar as nanvar,
)
from .ops.reduction.others import (
    product_of_others as product_of_others,
)
from .ops.reduction.primitives import (
    all as all, any as any, argmax as argmax, argmin as argmin, max as max, min as min,
    prod as prod, sum as sum,
)
from .ops.reduction.quantiles import (
    median as median, nanmedian as nanmedian, nanpercentile as nanpercentile,
    nanquantile as nanquantile, percentile as percentile, quantile as quantile,
)
from .ops.reduction.recurrence import (
    linear_recurrence as linear_recurrence,
)
from .ops.reduction.spread import (
    average as average, corrcoef as corrcoef, cov as cov, ptp as ptp,
)
from .ops.reduction.statistics import (
    count_nonzero as count_nonzero, logsumexp as logsumexp, mean as mean, norm as norm,
)
from .ops.shape.arrange import (
    expand_dims as expand_dims, moveaxis as moveaxis, ravel as ravel, reshape as reshape,
    squeeze as squeeze, swapaxes as swapaxes, transpose as transpose,
)
from .ops.shape.assembly import (
    array_split as array_split, atleast_1d as atleast_1d, atleast_2d as atleast_2d,
    atleast_3d as atleast_3d, block as block, broadcast_arrays as broadcast_arrays,
    column_stack as column_stack, dsplit as dsplit, dstack as dstack, hsplit as hsplit,
    hstack as hstack, unstack as unstack, vsplit as vsplit, vstack as vstack,
)
from .ops.shape.creation import (
    eye as eye, full as full, full_like as full_like, identity as identity, ones as ones,
    ones_like as ones_like, tri as tri, zeros as zeros, zeros_like as zeros_like,
)
from .ops.shape.diagonal import (
    diag as diag, diag_indices as diag_indices, diagflat as diagflat, diagonal as diagonal,
    fill_diagonal as fill_diagonal, trace as trace, tril as tril, tril_indices as tril_indices,
    triu as triu, triu_indices as triu_indices,
)
from .ops.shape.editing import (
    append as append, delete as delete, insert as insert,
)
from .ops.shape.grids import (
    indices as indices, meshgrid as meshgrid,
)
from .ops.shape.joining import (
    broadcast_to as broadcast_to, concatenate as concatenate, stack as stack,
)
from .ops.shape.padding import (
    pad as pad,
)
from .ops.shape.pieces import (
    flip as flip, split as split,
)
from .ops.shape.spacing import (
    geomspace as geomspace, linspace as linspace, logspace as logspace,
)
from .ops.shape.tiling import (
    fliplr as fliplr, flipud as flipud, repeat as repeat, roll as roll, rot90 as rot90,
    sliding_window_view as sliding_window_view, tile as tile,
)
from .ops.signal.convolve import (
    convolve as convolve, correlate as correlate,
)
from .ops.signal.windows import (
    bartlett as bartlett, blackman as blackman, hamming as hamming, hanning as hanning,
    kaiser as kaiser,
)
from .ops.spatial.patches import (
    fold as fold, unfold as unfold,
)
from .ops.spatial.pooling import (
    avg_pool1d as avg_pool1d, avg_pool2d as avg_pool2d, avg_pool3d as avg_pool3d,
    max_pool1d as max_pool1d, max_pool2d as max_pool2d, max_pool3d as max_pool3d,
)
from .ops.spatial.pooling_grid import (
    adaptive_avg_pool as adaptive_avg_pool, adaptive_max_pool as adaptive_max_pool,
    global_avg_pool as global_avg_pool, global_max_pool as global_max_pool,
)
from .ops.spatial.resize import (
    resize as interpolate, pixel_shuffle as pixel_shuffle, pixel_unshuffle as pixel_unshuffle,
    resize as resize,
)
from .ops.special.primitives import (
    digamma as digamma, erf as erf, erfc as erfc, erfinv as erfinv, lgamma as lgamma,
    polygamma as polygamma, rbf as rbf, zeta as zeta,
)
from .optimizer.scipy_objective import (
    ScipyObjective as ScipyObjective, scipy_objective as scipy_objective,
)
bfloat16: _dtype[_Any]
bool: _dtype[_Any]
complex64: _dtype[_Any]
complex128: _dtype[_Any]
float16: _dtype[_Any]
float32: _dtype[_Any]
float64: _dtype[_Any]
int8: _dtype[_Any]
int16: _dtype[_Any]
int32: _dtype[_Any]
int64: _dtype[_Any]
uint8: _dtype[_Any]
uint16: _dtype[_Any]
uint32: _dtype[_Any]
uint64: _dtype[_Any]
__all__ = [
    "ArgumentError", "BroadcastWarning", "CacheWarning", "CheckError", "CommunicationError",
    "CompilerUnavailable", "ConfigError", "DTypeError", "DataError", "DeviceError", "Dim",
    "DivergedError", "ExportError", "FallbackWarning", "FeedError", "FixedPoint", "Function",
    "GradientError", "GradientReport", "Graph", "GraphError", "LinAlgError", "MagmagraphError",
    "MemoryLimitError", "MissingFileError", "MissingLibraryError", "Model", "NeuralNetwork", "Node",
    "NonFiniteError", "OnnxError", "OnnxRuleError", "Operation", "PassError", "PlanError",
    "RanksWarning", "ReentrantError", "ScipyObjective", "ShapeError", "ShardingError",
    "StorageError", "Target", "Tensor", "Type", "UpdateError", "Variable", "__version__", "abs",
    "absolute", "acos", "acosh", "adaptive_avg_pool", "adaptive_max_pool", "add", "all", "allclose",
    "alpha_dropout", "angle", "any", "append", "apply_rotary", "arange", "arccos", "arccosh",
    "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "argwhere",
    "array_equal", "array_equiv", "array_split", "asarray", "asin", "asinh", "astype", "atan",
    "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "bartlett", "batch_norm", "batch_statistics", "batches", "bfloat16",
    "binary_cross_entropy", "bincount", "bitwise_and", "bitwise_invert", "bitwise_left_shift",
    "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "blackman", "block", "bool",
    "boolean_index", "broadcast_arrays", "broadcast_to", "callbacks", "can_cast", "cast",
    "causal_mask", "cbrt", "ceil", "celu", "check_gradients", "check_operation", "checkpoint",
    "checkpoint_name", "choose", "clip", "column_stack", "complex", "complex128", "complex64",
    "compress", "concat", "concatenate", "cond", "config", "conj", "conjugate", "constant", "conv",
    "conv1d", "conv1d_transpose", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose",
    "conv_transpose", "convolve", "copysign", "corrcoef", "correlate", "cos", "cosh",
    "cosine_embedding_loss", "cosine_similarity", "count_nonzero", "cov", "cross", "cross_entropy",
    "ctc_loss", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod",
    "cumulative_sum", "custom_gradient", "data", "debug", "default_updates", "deg2rad", "delete",
    "dequantize", "diag", "diag_indices", "diagflat", "diagonal", "dice_loss", "diff", "digamma",
    "digitize", "distributed", "divide", "divmod", "dot", "dropout", "dsplit", "dstack", "dtypes",
    "e", "ediff1d", "einsum", "elu", "embedding", "empty", "empty_like", "equal", "erf", "erfc",
    "erfinv", "exp", "exp2", "expand_dims", "expm1", "extent", "extract", "eye", "fft",
    "fill_diagonal", "finfo", "fixed_point", "flatnonzero", "flip", "fliplr", "flipud", "float16",
    "float32", "float64", "float_power", "floor", "floor_divide", "fmax", "fmin", "fmod",
    "focal_loss", "fold", "frexp", "from_dlpack", "from_onnx", "from_torch", "full", "full_like",
    "function", "gaussian_nll", "gcd", "gelu", "generate", "geomspace", "global_avg_pool",
    "global_max_pool", "glu", "grad", "gradient", "greater", "greater_equal", "group_norm",
    "gumbel_softmax", "hamming", "hanning", "hard_sigmoid", "hard_silu", "hard_swish", "hardshrink",
    "hardtanh", "heaviside", "hessian", "hinge", "histogram", "histogram2d", "histogram_bin_edges",
    "hsplit", "hstack", "huber", "hvp", "hypot", "identity", "iinfo", "imag", "index",
    "index_update", "indices", "inf", "info_nce", "init", "inner", "input", "insert",
    "instance_norm", "int16", "int32", "int64", "int8", "interp", "interpolate", "intersect1d",
    "invert", "isclose", "iscomplex", "isdtype", "isfinite", "isin", "isinf", "isnan", "isneginf",
    "isposinf", "isreal", "ix_", "jacobian", "jit", "jvp", "kaiser", "kl_divergence", "kron",
    "l1_loss", "layer_norm", "lcm", "ldexp", "leaky_relu", "left_shift", "less", "less_equal",
    "lexsort", "lgamma", "linalg", "linear_recurrence", "linspace", "load", "local_response_norm",
    "log", "log10", "log1mexp", "log1p", "log2", "log_cosh", "log_sigmoid", "log_softmax",
    "logaddexp", "logaddexp2", "loggers", "logical_and", "logical_not", "logical_or", "logical_xor",
    "logmeanexp", "logspace", "logsumexp", "mae", "margin_ranking_loss", "matmul",
    "matrix_transpose", "max", "max_pool1d", "max_pool2d", "max_pool3d", "maximum", "mean",
    "median", "meshgrid", "metrics", "min", "minimum", "mish", "mod", "modf", "moveaxis", "mse",
    "multi_margin", "multiply", "nan", "nan_to_num", "nanargmax", "nanargmin", "nancumprod",
    "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod",
    "nanquantile", "nanstd", "nansum", "nanvar", "negative", "newaxis", "nextafter", "nll_loss",
    "nn", "nonzero", "norm", "normalize", "not_equal", "one_hot", "ones", "ones_like",
    "op_from_graph", "optimizer", "outer", "pad", "padding_mask", "passes", "percentile",
    "permute_dims", "pi", "pixel_shuffle", "pixel_unshuffle", "poisson_nll", "polygamma", "polyval",
    "positional_encoding", "positive", "pow", "power", "prelu", "prod", "product_of_others", "ptp",
    "put_along_axis", "quantile", "quantize", "rad2deg", "random", "ravel", "ravel_multi_index",
    "rbf", "real", "reciprocal", "regularize", "relu", "relu6", "remainder", "repeat", "reshape",
    "resize", "result_type", "right_shift", "rint", "rms_norm", "roll", "root", "rot90", "round",
    "rsqrt", "running_statistics", "scaled_dot_product_attention", "scan", "schedule",
    "scipy_objective", "scope", "searchsorted", "select", "selu", "setdiff1d", "setxor1d", "show",
    "sigmoid", "sign", "signbit", "silu", "sin", "sinc", "sinh", "sliding_window_view", "smooth_l1",
    "smooth_labels", "softmax", "softmin", "softplus", "softshrink", "softsign", "sort",
    "sparse_plus", "sparse_sigmoid", "spatial_dropout", "special", "split", "sqrt", "square",
    "squared_hinge", "squareplus", "squeeze", "stack", "standardize", "stateful", "std",
    "stop_gradient", "substitute", "subtract", "sum", "swapaxes", "swish", "switch", "synchronize",
    "take", "take_along_axis", "tan", "tanh", "tanhshrink", "tensordot", "threshold", "tile",
    "to_networkx", "to_onnx", "top_k", "trace", "transpose", "trapezoid", "tri", "tril",
    "tril_indices", "triplet_margin_loss", "triu", "triu_indices", "trunc", "tune", "uint16",
    "uint32", "uint64", "uint8", "unfold", "union1d", "unique", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "unravel_index", "unstack", "unwrap", "value_and_grad",
    "vander", "var", "variable", "variance", "vdot", "vecdot", "vjp", "vmap", "vsplit", "vstack",
    "where", "while_loop", "workflow", "zeros", "zeros_like", "zeta",
]
