"""magmagraph: a lazy compute-graph compiler that shows its work.

Build a graph with `var` and the functions below, whose names are NumPy's where NumPy has them;
`function` compiles it, `grad` differentiates it, `optimizer` trains with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .ops import register as _register  # first: what follows imports modules of its families

# isort: split

from .dtypes import canonical as _canonical
from .function import evaluation as _evaluation  # noqa: F401  it defines Node.eval
from .function import notebooks as _notebooks  # noqa: F401  it defines Node._repr_html_
from .functional import RECORDS as _COMPOSITES
from .help.argument_errors import tell as _tell
from .help.argument_errors import tell_classes as _tell_classes
from .help.argument_errors import tell_methods as _tell_methods
from .ir import dims  # noqa: F401
from .ir.graph import Node as _Node
from .ir.launchers import label_errors as _label_errors
from .ops.operators import Operators as _Operators
from .ops.random.order import shape_first as _shape_first

# This file is a table of the public names; `__init__.pyi`, which `make docs` makes from it, gives
# them to type checkers. `mg.linalg` and such are modules:
_MODULES = (
    "checks.debug", "distributed", "dtypes", "fft", "init", "linalg", "optimizer",
    "passes",
    "random", "schedule", "special",
)
# Module -> the names that are taken from it; "abs=absolute" has another name here.
_NAMES = {
    "_version": "__version__",
    "config": "config",
    "function.defaults": "default_updates stateful",
    "ir.dims": "Dim",
    "errors":
        "ArgumentError BroadcastWarning CacheWarning CheckError CommunicationError "
        "CompilerUnavailable ConfigError "
        "DTypeError DataError DeviceError DivergedError ExportError FallbackWarning FeedError "
        "GradientError GraphError LinAlgError MagmagraphError MemoryLimitError MissingFileError "
        "MissingLibraryError NonFiniteError OnnxError OnnxRuleError PassError PlanError "
        "RanksWarning ReentrantError ShapeError ShardingError StorageError UpdateError",
    "function": "Function function synchronize",
    "function.substitute": "substitute",
    "function.tracing": "grad jit value_and_grad",
    "functional":
        "alpha_dropout batch_norm batch_statistics dropout group_norm gumbel_softmax instance_norm "
        "layer_norm local_response_norm log_softmax logmeanexp normalize rms_norm "
        "running_statistics softmax softmin spatial_dropout standardize",
    "autodiff.autodiff": "vjp",
    "autodiff.derivatives": "hessian hvp jacobian jvp",
    "autodiff.implicit": "FixedPoint fixed_point root",
    "ir.graph": "Graph Node",
    "losses":
        "binary_cross_entropy cosine_embedding_loss cosine_similarity cross_entropy dice_loss "
        "focal_loss gaussian_nll hinge huber info_nce kl_divergence l1_loss=mae log_cosh mae "
        "margin_ranking_loss mse multi_margin nll_loss poisson_nll smooth_l1 smooth_labels "
        "squared_hinge triplet_margin_loss",
    "ops.control.differentiation": "checkpoint checkpoint_name custom_gradient",
    "ops.control.identities": "stop_gradient",
    "ops.convert": "cast",
    "ops.convolution.functions": "conv conv1d conv2d conv3d",
    "ops.convolution.transpose":
        "conv1d_transpose conv2d_transpose conv3d_transpose conv_transpose",
    "ops.elementwise.arithmetic":
        "add divide floor_divide mod=remainder multiply negative reciprocal remainder square "
        "subtract",
    "ops.elementwise.bits":
        "bitwise_and bitwise_not bitwise_or bitwise_xor invert=bitwise_not left_shift logical_and "
        "logical_not logical_or logical_xor right_shift",
    "ops.elementwise.closeness": "allclose array_equal array_equiv isclose",
    "ops.elementwise.comparison":
        "clip equal greater greater_equal less less_equal maximum minimum not_equal where",
    "ops.elementwise.complex_numbers": "complex conj conjugate=conj imag iscomplex isreal real",
    "ops.elementwise.exponents": "float_power frexp ldexp logaddexp logaddexp2",
    "ops.elementwise.math":
        "angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh cbrt cos cosh exp exp2 expm1 "
        "hypot log log10 log1p log2 pow=power power rsqrt sin sinh sqrt tan tanh",
    "ops.elementwise.not_finite": "fmax fmin isneginf isposinf nan_to_num",
    "ops.elementwise.numbers": "deg2rad divmod fmod gcd lcm modf rad2deg sinc",
    "ops.elementwise.polynomials": "polyval vander",
    "ops.elementwise.quantization": "dequantize quantize",
    "ops.elementwise.rounding": "ceil floor isfinite isinf isnan rint round trunc",
    "ops.elementwise.signs":
        "abs=absolute absolute copysign heaviside nextafter positive sign signbit",
    "ops.indexing.choosing": "choose select",
    "ops.indexing.finding": "argwhere flatnonzero nonzero",
    "ops.indexing.gathering": "take take_along_axis",
    "ops.indexing.interpolation": "interp",
    "ops.indexing.iota": "arange one_hot",
    "ops.indexing.keys": "index",
    "ops.indexing.raveling": "ix_ ravel_multi_index unravel_index",
    "ops.indexing.selecting": "boolean_index compress extract isin",
    "ops.indexing.sets":
        "intersect1d setdiff1d setxor1d union1d unique unique_all unique_counts unique_inverse "
        "unique_values",
    "ops.indexing.sorting": "argsort digitize lexsort searchsorted sort top_k",
    "ops.indexing.updates": "index_update put_along_axis",
    "ops.leaf": "Variable constant extent input variable",
    "ops.linalg.products": "kron vecdot",
    "ops.linalg.traces": "matrix_transpose",
    "ops.networks.activation": "log1mexp log_sigmoid relu sigmoid softplus",
    "ops.networks.attention": "scaled_dot_product_attention",
    "ops.networks.ctc": "ctc_loss",
    "ops.networks.embedding": "embedding",
    "ops.networks.exponential_units": "celu elu selu softsign squareplus tanhshrink",
    "ops.networks.gelu": "gelu mish silu swish=silu",
    "ops.networks.masks": "causal_mask padding_mask",
    "ops.networks.piecewise":
        "hard_sigmoid hard_silu hard_swish=hard_silu hardshrink relu6 softshrink sparse_plus "
        "sparse_sigmoid threshold",
    "ops.networks.positions": "apply_rotary positional_encoding",
    "ops.networks.slopes": "glu hardtanh leaky_relu prelu",
    "ops.products.contraction": "dot inner matmul outer tensordot vdot",
    "ops.products.einsum": "einsum",
    "ops.reduction.calculus": "cross diff ediff1d gradient trapezoid unwrap",
    "ops.reduction.cumulative":
        "cumlogsumexp cummax cummin cumprod cumsum cumulative_prod cumulative_sum",
    "ops.reduction.deviations": "std variance",
    "ops.reduction.histogram": "bincount histogram histogram2d histogram_bin_edges",
    "ops.reduction.nan_statistics":
        "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum "
        "nanvar",
    "ops.reduction.others": "product_of_others",
    "ops.reduction.primitives": "all any argmax argmin max min prod sum",
    "ops.reduction.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
    "ops.reduction.recurrence": "linear_recurrence",
    "ops.reduction.spread": "average corrcoef cov ptp",
    "ops.reduction.statistics": "count_nonzero logsumexp mean norm",
    "ops.shape.arrange": "expand_dims moveaxis ravel reshape squeeze swapaxes transpose",
    "ops.shape.assembly":
        "array_split atleast_1d atleast_2d atleast_3d block broadcast_arrays column_stack dsplit "
        "dstack hsplit hstack unstack vsplit vstack",
    "ops.shape.creation": "eye full full_like identity ones ones_like tri zeros zeros_like",
    "ops.shape.diagonal":
        "diag diag_indices diagflat diagonal fill_diagonal trace tril tril_indices triu "
        "triu_indices",
    "ops.shape.editing": "append delete insert",
    "ops.shape.grids": "indices meshgrid",
    "ops.shape.joining": "broadcast_to concatenate stack",
    "ops.shape.padding": "pad",
    "ops.shape.pieces": "flip split",
    "ops.shape.spacing": "geomspace linspace logspace",
    "ops.shape.tiling": "fliplr flipud repeat roll rot90 sliding_window_view tile",
    "ops.signal.convolve": "convolve correlate",
    "ops.signal.windows": "bartlett blackman hamming hanning kaiser",
    "ops.spatial.patches": "fold unfold",
    "ops.spatial.pooling": "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d",
    "ops.spatial.pooling_grid":
        "adaptive_avg_pool adaptive_max_pool global_avg_pool global_max_pool",
    "ops.spatial.resize": "interpolate=resize pixel_shuffle pixel_unshuffle resize",
    "ops.special.primitives": "digamma erf erfc erfinv lgamma polygamma rbf zeta",
    "optimizer.scipy_objective": "ScipyObjective scipy_objective",
    "ir.scope": "scope",
    "functional.standard":
        "__array_namespace_info__=namespace_info acos acosh asarray asin asinh astype atan atan2 "
        "atanh bitwise_invert bitwise_left_shift bitwise_right_shift can_cast concat e empty "
        "empty_like finfo from_dlpack iinfo inf isdtype nan newaxis permute_dims pi result_type "
        "var",
    "autodiff.transforms.branching": "cond switch",
    "autodiff.transforms.scanning": "scan while_loop",
    "autodiff.transforms.subgraph": "op_from_graph",
    "autodiff.transforms.vmap": "vmap",
    "ir.target": "Target",
    "ir.types": "Type",
}  # fmt: skip
_DTYPES = (
    "bfloat16", "bool", "complex64", "complex128", "float16", "float32", "float64", "int8",
    "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)

# The same for what is imported when first asked for, as a program that only computes never needs
# it. Files and archives bring in the standard library's decompressors, too.
_LATER_MODULES = (
    "callbacks", "data", "loggers", "metrics", "nn", "regularize", "tune", "workflow",
)
_LATER_NAMES = {
    "checks.gradient_check": "GradientReport check_gradients",
    "checks.operation_check": "check_operation",
    "functional.custom": "Operation",
    "data": "batches",
    "function.loading": "load",
    "inspect.networkx": "to_networkx",
    "interchange.onnx.importer": "from_onnx",
    "interchange.torch.importer": "from_torch",
    "inspect.onnx_export": "to_onnx",
    "inspect.show": "show",
    "model": "Model NeuralNetwork",
    "model.generation": "generate",
    "function.tensor": "Tensor",
}  # fmt: skip


def _places(modules: tuple[str, ...], names: dict[str, str]) -> dict[str, tuple[str, str | None]]:
    """Return the module of each public name, and the name there; None of a module itself."""
    places: dict[str, tuple[str, str | None]] = {}
    for module in modules:
        places[module.rpartition(".")[2]] = (module, None)
    for module, text in names.items():
        for entry in text.split():
            public, _, own = entry.partition("=")
            places[public] = (module, own or public)
    return places


_NOW = _places(_MODULES, _NAMES)
_LATER = _places(_LATER_MODULES, _LATER_NAMES)


def _read(module: str, name: str | None) -> Any:
    """Import a module, and return what has a name there."""
    source = import_module(f"{__name__}.{module}")
    return source if name is None else getattr(source, name)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise import_module(".help.spellings", __name__).missing(__name__, name)
    globals()[name] = _read(*_LATER[name])
    _tell(globals(), (name,))
    _tell_classes(globals(), (name,))
    return globals()[name]


def __dir__() -> list[str]:
    dunder = [name for name in globals() if name.startswith("__")]
    return sorted({*__all__, *dunder})


# All at once: a module of the package may have the name of a function, such as `function`.
globals().update({name: _read(*place) for name, place in _NOW.items()})
globals().update({name: _canonical(name) for name in _DTYPES})
__all__ = sorted({*_NOW, *_LATER, *_DTYPES} - {"__array_namespace_info__"})
_register(_COMPOSITES)

# What users call explains why arguments do not fit; modules here call each other without that.
_tell(globals(), __all__)
for _name in _MODULES:
    _module = vars(_read(_name, None))
    _tell(_module, _module["__all__"], _shape_first if _name == "random" else None)
for _name in ("distributed", "schedule", "passes"):
    _module = vars(_read(_name, None))
    _tell_classes(_module, _module["__all__"])
_tell_classes(globals(), ("Function", "Graph"))
_methods = [name for name in vars(_Operators) if name[0] != "_"]
_tell_methods(_Node, [*_methods, "__round__", "eval"])
del _methods, _module, _name

_label_errors()  # of a process that mpiexec has started as one of several
