"""Why arguments do not fit a function, and what keywords of other libraries are called here.

Read only where a call has failed; see `telling`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from ..errors import ArgumentError, message
from .public_names import public_name, short_name

__all__ = [
    "counterpart",
    "misfit",
    "misfit_of_class",
    "misfit_of_method",
    "name_of_method",
    "parameters_of",
]

_VALUE = "leave it out: a node is a value, and nothing is written into one; y = {call}"
_MEMORY = "leave it out: how values lie in memory is chosen by passes"
_DEVICE = "leave it out: devices are chosen by mg.function(..., device=)"
_GRADIENTS = "leave it out: mg.grad(loss, [w, b]) takes gradients of any float node"
_INPUTS = "leave it out: the number of inputs is that of the layer before"
_STABLE = "leave it out: the order of equal elements is always kept"
_FINITE = "leave it out; mg.function(..., nan='raise') refuses values that are not finite"
_FUSED = "leave it out: kernels are made and fused by passes"
_PRECISION = "mg.function(..., precision=), for all products of a function"
_BETAS = "beta1=, beta2="

# Keyword -> what it is called here: names, of which the first that a function takes is meant, and
# a text where there is none. `{call}` is the call without the keyword.
COUNTERPARTS: Mapping[str, tuple[str | None, ...]] = {
    # NumPy, SciPy and the array API
    **dict.fromkeys(("a", "arr", "array", "ary", "ar", "m", "A", "v", "val", "input", "tensor",
                     "self", "image"), ("_first", None)),
    **dict.fromkeys(("other", "x2", "b"), ("_second", None)),
    "x1": ("_first", None),
    "out": ("_value", _VALUE),
    "where": ("mask", "mg.where(mask, {call}, other): without it NumPy's elements are undefined"),
    "casting": (None, "mg.cast(x, dtype), which converts between all dtypes"),
    "dtype": (None, "mg.cast({call}, dtype), or mg.cast of the operands"),
    "order": (None, _MEMORY),
    "subok": (None, "leave it out: there are no subclasses of nodes"),
    "like": (None, "leave it out: every result is a node"),
    "device": (None, _DEVICE),
    "copy": (None, "leave it out: a node is a value, and never changes"),
    "kind": (None, _STABLE),
    "stable": (None, _STABLE),
    "axes": ("axis",),
    "axis": ("axes", "dim"),
    **dict.fromkeys(("dim", "dims", "reduction_indices"), ("axis", "axes")),
    **dict.fromkeys(("keepdim", "keep_dims"), ("keepdims",)),
    **dict.fromkeys(("overwrite_a", "overwrite_b", "overwrite_x", "overwrite_input", "overwrite_ab",
                     "inplace"), (None, _VALUE)),
    "check_finite": (None, _FINITE),
    "interpolation": ("method",),
    "unbiased": ("ddof", "correction"),
    "correction": ("ddof",),
    **dict.fromkeys(("size", "sample_shape", "output_shape"), ("shape", "size")),
    "loc": ("mean", "low", "loc"),
    "scale": ("std", "scale"),
    **dict.fromkeys(("stddev", "sigma"), ("std", "sigma")),
    **dict.fromkeys(("minval", "min_val", "min_value"), ("low", "min")),
    **dict.fromkeys(("maxval", "max_val", "max_value"), ("high", "max")),
    "newshape": ("shape",),
    "new_shape": ("shape", "size"),
    "exact": (None, "leave it out: the result is a float"),
    **dict.fromkeys(("sections", "indices", "num_or_size_splits", "split_size_or_sections"),
                    ("indices_or_sections",)),
    **dict.fromkeys(("preferred_element_type", "precision"), ("precision", _PRECISION)),
    # JAX
    **dict.fromkeys(("rng", "rng_key", "random_state", "generator", "rngs"), ("key", "seed")),
    "argnums": ("wrt", "inputs"),
    "has_aux": (None, "leave it out: any node may be an output beside a gradient"),
    "static_argnums": (None, "leave it out: Python values are part of the graph"),
    "donate_argnums": (None, "mg.function(..., updates={w: new}), which renews variables in place"),
    # Networks
    "num_classes": ("classes", "labels"),
    "depth": ("classes",),
    "tau": ("temperature",),
    "alpha": ("negative_slope", "decay", "beta", "weights"),
    "value": ("fill_value", "constant_values", "values"),
    "batch_size": ("size",),
    **dict.fromkeys(("p", "drop_prob", "dropout_rate", "prob"), ("rate", "p", "ord", "dropout")),
    "min": ("low",),
    "max": ("high",),
    "epsilon": ("eps", "epsilon"),
    "eps": ("epsilon",),
    **dict.fromkeys(("weight", "sample_weight", "class_weight"), ("weights", "scale", "table")),
    "gamma": ("scale", "decay", "factor"),
    "min_delta": ("least",),
    "restore_best_weights": ("restore_best",),
    **dict.fromkeys(("sep", "delim"), ("delimiter",)),
    **dict.fromkeys(("workers", "n_jobs"), (None, "leave it out: mg.config.threads is for all")),
    "beta": ("offset", "beta"),
    "bias": ("offset", "bias"),
    "pos_weight": ("positive_weight",),
    **dict.fromkeys(("size_average", "reduce"), ("reduction",)),
    **dict.fromkeys(("target", "targets", "y_true", "y"), ("labels", "target", "y")),
    **dict.fromkeys(("prediction", "y_pred", "log_probs"),
                    ("logits", "prediction", "log_probabilities")),
    "from_logits": (None, "leave it out, or mg.cross_entropy and mg.binary_cross_entropy, which "
                          "take it"),
    **dict.fromkeys(("kernel_size", "pool_size", "window_shape", "filter_size"), ("window",)),
    **dict.fromkeys(("strides", "window_strides"), ("stride",)),
    **dict.fromkeys(("dilation_rate", "dilations", "rhs_dilation"), ("dilation",)),
    "feature_group_count": ("groups",),
    **dict.fromkeys(("data_format", "dimension_numbers"), ("layout", "channels_last")),
    "padding_mode": (None, "mg.pad(x, widths, mode=) before it"),
    "ceil_mode": (None, "padding='same', which keeps what lies at the edge"),
    "scale_factor": ("scale",),
    "mode": ("method", "how", "passes"),
    "output_size": ("extents", "size", "shape"),
    "activation_fn": ("activation",),
    **dict.fromkeys(("out_channels", "num_filters", "features"), ("filters", "units")),
    **dict.fromkeys(("in_channels", "in_features", "input_size", "num_features"), (None, _INPUTS)),
    **dict.fromkeys(("normalized_shape",), ("axis", "leave it out: the last axis is normalized")),
    **dict.fromkeys(("input_shape", "input_dim", "batch_input_shape"),
                    ("rows", "mg.nn.Input(shape) as the first layer")),
    **dict.fromkeys(("out_features", "hidden_size", "num_units", "hidden_units", "output_dim"),
                    ("units", "width")),
    "use_bias": ("bias",),
    **dict.fromkeys(("kernel_initializer", "weight_init", "init"), ("kernel_init",)),
    **dict.fromkeys(("embeddings_initializer", "embedding_init"), ("table_init",)),
    "bias_initializer": ("bias_init",),
    "recurrent_initializer": ("recurrent_init",),
    **dict.fromkeys(("kernel_regularizer", "embeddings_regularizer"), ("regularizer",)),
    "num_layers": (None, "one layer after the other: mg.nn.Sequential([...])"),
    "batch_first": (None, "leave it out: the batch is the first axis, time the second"),
    "return_state": (None, "leave it out"),
    "num_heads": ("heads",),
    **dict.fromkeys(("embed_dim", "key_dim", "embedding_dim", "d_model"), ("width",)),
    **dict.fromkeys(("num_embeddings", "vocab_size"), ("rows",)),
    "padding_idx": ("padding_index",),
    "num_groups": ("groups",),
    "affine": ("scale", "leave it out: scale and offset are learned"),
    "track_running_stats": (None, "leave it out: layer(x, training=True) uses those of the batch"),
    **dict.fromkeys(("is_causal", "use_causal_mask"), ("causal",)),
    "attn_mask": ("mask",),
    "dropout_p": ("dropout",),
    "noise_shape": (None, "mg.spatial_dropout, for whole channels"),
    # Optimizers and training
    **dict.fromkeys(("lr", "alpha0", "step_size"), ("learning_rate", "rate")),
    "betas": (None, _BETAS),
    "beta_1": ("beta1",),
    "beta_2": ("beta2",),
    "b1": ("beta1",),
    "b2": ("beta2",),
    **dict.fromkeys(("rho", "smoothing"), ("decay",)),
    **dict.fromkeys(("clipnorm", "global_clipnorm", "max_norm", "max_grad_norm"), ("clip_norm",)),
    **dict.fromkeys(("clipvalue", "clip"), ("clip_value",)),
    **dict.fromkeys(("params", "parameters", "var_list", "variables", "trainable_variables"),
                    ("wrt", "the call that uses it: optimizer.step(loss, [w, b])")),
    "initial_accumulator_value": ("initial",),
    "trust_coefficient": ("trust",),
    **dict.fromkeys(("gradient_accumulation_steps", "accumulate_steps"), ("accumulate",)),
    "maximize": (None, "the loss with a minus: minimize(-loss, ...)"),
    "amsgrad": (None, "leave it out: it is not built; AdamW and LAMB are the other choices"),
    "dampening": (None, "leave it out: the gradient enters the momentum whole"),
    **dict.fromkeys(("foreach", "fused", "capturable", "jit_compile", "jit"), (None, _FUSED)),
    "differentiable": (None, _GRADIENTS),
    **dict.fromkeys(("maxiter", "max_iter", "iterations", "n_iter", "num_steps", "nsteps", "niter"),
                    ("steps",)),
    **dict.fromkeys(("tolerance", "ftol", "xtol", "gtol", "rtol"), ("tol", "rtol")),
    **dict.fromkeys(("feed_dict", "feed"), ("feeds",)),
    "givens": (None, "mg.substitute(outputs, {x: z}) before it"),
    "steps": ("num", "steps"),
    **dict.fromkeys(("assume_unique", "sorted"), (None, "leave it out: values are sorted here")),
    "return_indices": (None, "mg.unique(x, return_index=True, size=n) of each"),
    "retstep": (None, "(stop - start) / (num - 1)"),
    "x0": (None, "the variable's value: mg.var(name, init=x0)"),
    "jac": (None, "leave it out: gradients are made from the graph"),
    "options": (None, "each option by its own name"),
    "epochs": ("steps", "epochs"),
    "n_epochs": ("epochs",),
    "nb_epoch": ("epochs",),
    "batchsize": ("batch_size",),
    "validation": ("validation_data",),
    "metric": ("metrics",),
    # Theano, PyTensor and TensorFlow
    "cost": ("loss", "outputs"),
    "consider_constant": (None, "mg.stop_gradient(x) in the loss"),
    "output": ("outputs",),
    "on_unused_input": (None, "leave it out: unused inputs are taken as they are"),
    "allow_input_downcast": ("strict_feeds",),
    "disconnected_inputs": ("unused",),
    "unused_variables": ("unused",),
    **dict.fromkeys(("create_graph", "retain_graph", "requires_grad"), (None, _GRADIENTS)),
    "borrow": (None, "leave it out: results are the caller's, and W.value is a copy"),
    "broadcastable": (None, "extents of 1 in the shape: mg.var(name, shape=('batch', 1))"),
    "non_sequences": (None, "use the node in the function: what it closes over is found"),
    "n_steps": ("length", "steps"),
}  # fmt: skip


# What is called with a Python function, where it takes nodes.
OF_FUNCTIONS: Mapping[str, str] = {
    "mg.function": "mg.jit, of a Python function; mg.function([x], f(x)), of nodes",
    "mg.jacobian": "mg.jit(lambda x: mg.jacobian(f(x), x))",
    "mg.hessian": "mg.jit(lambda x: mg.hessian(f(x), x))",
    "mg.hvp": "mg.jit(lambda x, v: mg.hvp(f(x), x, v))",
    "mg.vjp": "mg.jit(lambda x, u: mg.vjp(f(x), x, u))",
    "mg.jvp": "mg.jit(lambda x, t: mg.jvp(f(x), x, t))",
}
# Methods that are called without arguments elsewhere.
OF_BARE_CALLS: Mapping[str, str] = {
    "step": "step = optimizer.step(loss, [w, b], inputs=[x, y]), once; then step(x, y) for a batch",
}


def parameters_of(cls: type) -> dict[str, inspect.Parameter]:
    """Return what making an instance takes, with what is handed on to the bases by its name."""
    found: dict[str, inspect.Parameter] = {}
    more: inspect.Parameter | None = None
    for base in cls.__mro__[:-1]:
        method = base.__dict__.get("__init__")
        if method is None:
            continue
        parameters = list(inspect.signature(method).parameters.values())[1:]
        for each in parameters:
            if each.kind is each.VAR_KEYWORD or each.name in found:
                continue
            if more is None:
                found[each.name] = each
            elif each.default is not each.empty:  # others are given by the class itself
                found[each.name] = each.replace(kind=each.KEYWORD_ONLY)
        more = next((each for each in parameters if each.kind is each.VAR_KEYWORD), None)
        if more is None:
            return found
    if more is not None:
        found[more.name] = more
    return found


def _ordered(parameters: Mapping[str, inspect.Parameter]) -> inspect.Signature:
    """Return a signature without types, its parameters in an order that Python allows."""
    bare = [p.replace(annotation=p.empty) for p in parameters.values()]
    bare.sort(key=lambda p: p.kind)  # stable: what may be given by place stays in its order
    return inspect.Signature(bare)


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")


def _listed(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def counterpart(
    keyword: str, taken: Sequence[str], given: Sequence[str] = (), call: str = "f(x)"
) -> str | None:
    """Return what a keyword that a function does not take is called here, or most likely meant.

    keyword: What was given.
    taken: The names that the function takes, in its order.
    given: Those that have a value already.
    call: How the call would look without the keyword.
    """
    free = [name for name in taken if name not in given]
    for candidate in COUNTERPARTS.get(keyword, ()):
        if candidate is None:
            continue
        if candidate == "learning_rate" and candidate in given:  # PyTorch's variables in front
            return "learning_rate= alone; variables go to optimizer.step(loss, [w, b])"
        if candidate in ("_first", "_second"):
            place = int(candidate == "_second")
            if len(taken) > place and taken[place] in free:
                return f"{taken[place]}=, or by its place"
        elif candidate.isidentifier():
            if candidate in free:
                return f"{candidate}="
        else:
            return candidate.replace("{call}", call)
    folded = {name.lower().replace("_", ""): name for name in free}
    alike = folded.get(keyword.lower().replace("_", ""))
    near = [alike] if alike else difflib.get_close_matches(keyword, free, 1)
    return f"{near[0]}=" if near else None


def _why(
    who: str,
    parameters: Mapping[str, inspect.Parameter],
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> ArgumentError | None:
    """Return the error of a call that does not fit, or None where it fits."""
    signature = _ordered(parameters)
    try:
        signature.bind(*args, **named)
    except TypeError:
        pass
    else:
        return None
    need = f"{who}{signature}"
    by_place = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY,
                                                            p.POSITIONAL_OR_KEYWORD)]  # fmt: skip
    rest = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    takes = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD,
                                                              p.KEYWORD_ONLY)]  # fmt: skip
    unknown = [name for name in named if name not in takes]
    placed = [p.name for p in by_place[: len(args)]]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        held = [*placed, *(name for name in named if name in takes)]
        call = f"{who}({', '.join(p.name for p in by_place if p.default is p.empty)})"
        hints: dict[str, str] = {}
        for name in unknown:
            hint = counterpart(name, takes, held, call)
            if hint is not None:
                hints[name] = hint
                held.append(hint.removesuffix("="))
        word = "an unexpected keyword argument" if len(unknown) == 1 else (
            "unexpected keyword arguments")  # fmt: skip
        lines = list(hints.values()) if len(unknown) == 1 else [
            f"for {name}: {hint}" for name, hint in hints.items()]  # fmt: skip
        return ArgumentError(
            message(f"{who}() got {word} {_listed(unknown)}", need, "\n".join(lines) or None)
        )
    if len(args) > len(by_place) and not rest:
        return ArgumentError(
            message(
                f"{who}() takes at most {_plural(len(by_place), 'positional argument')}, and "
                f"{len(args)} were given",
                need,
                _gathered(who, by_place, args, [n for n in takes if parameters[n].default
                                                is not inspect.Parameter.empty]),
            )
        )
    twice = [name for name in placed if name in named]
    if twice:
        return ArgumentError(
            message(f"{who}() got multiple values for argument {_listed(twice)}", need)
        )
    absent = [
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        and p.name not in placed and p.name not in named
    ]  # fmt: skip
    text = f"{who}() missing {_plural(len(absent), 'required argument')}: {_listed(absent)}"
    hint = OF_FUNCTIONS.get(who) if args and isinstance(args[0], FunctionType) else None
    if not args and not named:
        hint = OF_BARE_CALLS.get(who.rpartition(".")[2])
    return ArgumentError(message(text, need, hint))


_ONE_OF_MANY = ("axes", "axis", "dims", "patterns", "pad_width", "reps", "shape", "size", "shift")
_LISTS = ("arrays", "arys", "inputs", "layers", "operands", "outputs", "tup", "tensors")


def _gathered(
    who: str,
    by_place: Sequence[inspect.Parameter],
    args: Sequence[Any],
    taken: Sequence[str],
) -> str | None:
    """Return a hint where extents or operands stand one by one that belong in one argument.

    `taken` are the names of options.
    """
    for place, parameter in enumerate(by_place):
        rest = args[place:]
        before = "".join(f"{p.name}, " for p in by_place[:place])
        if parameter.name in _ONE_OF_MANY and len(rest) > 1:
            if all(isinstance(each, (int, str, np.integer)) for each in rest):
                return f"one tuple: {who}({before}({', '.join(map(repr, rest))}))"
        if parameter.name in _LISTS and len(rest) > 1:
            return f"one list: {who}({before}[...])"
    if not by_place and taken and all(isinstance(each, (int, np.integer)) for each in args):
        return "leave numbers of features out: they are those of the input, when it is called"
    return "options by their names" if taken else None


def misfit(
    who: str, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
) -> ArgumentError | None:
    """Return (not raise) why arguments do not fit a function, or None where they do.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.sum([1.0], dim=0)
    Traceback (most recent call last):
        ...
    magmagraph.errors.ArgumentError: mg.sum() got an unexpected keyword argument 'dim'
      expected: mg.sum(x, axis=None, keepdims=False, dtype=None, *, initial=None, where=True)
      try: axis=
    """
    return _why(short_name(who), dict(inspect.signature(function).parameters), args, named)


def misfit_of_class(
    cls: type, args: Sequence[Any], named: Mapping[str, Any]
) -> ArgumentError | None:
    """Return (not raise) why arguments do not fit a class, or None where they do."""
    return _why(public_name(cls), parameters_of(cls), args, named)


def misfit_of_method(
    cls: type, method: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
) -> ArgumentError | None:
    """Return (not raise) why arguments do not fit a method, or None where they do."""
    parameters = dict(list(inspect.signature(method).parameters.items())[1:])
    return _why(name_of_method(cls, method), parameters, args, named)


def name_of_method(cls: type, method: Callable[..., Any]) -> str:
    """Return what users call a method: ``mg.nn.Dense.weight``; of a class, where it is made."""
    if method.__name__ == "__init__":
        return public_name(cls)
    who = "x" if hasattr(cls, "__array_ufunc__") else public_name(cls)  # a node, under any name
    return f"{who}.{method.__name__}"
