"""Names that other libraries have for what is here: looked up only where a name is missing."""

from __future__ import annotations

import sys

from ..errors import message

__all__ = ["missing", "missing_of_node"]

OF_NODE = {
    "backward": "mg.grad(loss, [w, b]), which makes gradients as nodes",
    "grad": "mg.grad(loss, w), which makes the gradient as a node",
    "requires_grad": "nothing: mg.grad(loss, w) takes gradients of any float node",
    "requires_grad_": "nothing: mg.grad(loss, w) takes gradients of any float node",
    "detach": "mg.stop_gradient(x)",
    "numpy": "x.eval({input: array}) for the value",
    "item": "x.eval({input: array}) for the value",
    "tolist": "x.eval({input: array}) for the value",
    "value": "x.eval({input: array}); only variables hold a value",
    "block_until_ready": "mg.synchronize()",
    "to": "mg.cast(x, dtype); devices are chosen by mg.function(..., device=)",
    "cpu": "mg.function(..., device='cpu')",
    "cuda": "mg.function(..., device='cuda')",
    "float": "mg.cast(x, 'float32')",
    "double": "mg.cast(x, 'float64')",
    "half": "mg.cast(x, 'float16')",
    "long": "mg.cast(x, 'int64')",
    "view": "mg.reshape(x, shape)",
    "permute": "mg.transpose(x, axes)",
    "t": "x.T",
    "unsqueeze": "mg.expand_dims(x, axis)",
    "expand": "mg.broadcast_to(x, shape)",
    "contiguous": "nothing: how a value lies in memory is chosen by passes",
    "clone": "nothing: a node is a value, and never changes",
    "dim": "x.ndim",
    "numel": "x.size",
    "add_": "x + y, a new node; a variable is updated by mg.function(..., updates={w: w + y})",
    "copy_": "w.assign(array), or mg.function(..., updates={w: new})",
    "zero_": "w.assign(array), or mg.function(..., updates={w: new})",
}

OF_LAYER = {
    "parameters": "layer.trainable_variables, a list; layer.weights() has names",
    "named_parameters": "layer.weights(), by name",
    "trainable_weights": "layer.trainable_variables",
    "state_dict": "{name: w.variable.value for name, w in layer.weights().items()}",
    "load_state_dict": "layer.weights()[name].variable.assign(array) for each name",
    "forward": "layer(x), which runs its method `call`",
    "train": "layer(x, training=True)",
    "eval": "layer(x), without training=True",
    "zero_grad": "nothing: gradients are nodes, built again where mg.grad asks for them",
    "to": "nothing: devices are chosen by mg.function(..., device=)",
    "cuda": "nothing: devices are chosen by mg.function(..., device=)",
}

OF_MODULE = {
    "magmagraph": {
        "array": "mg.constant(values); mg.asarray([[a, 0.0], [b, c]]) of numbers and nodes; "
        "mg.var(name, init=values) for what changes",
        "tensor": "mg.constant(values), or mg.var(name, init=values) for what changes",
        "placeholder": "mg.input(name, shape)",
        "Parameter": "mg.var(name, init=values)",
        "jit": "mg.function(inputs, outputs)",
        "compile": "mg.function(inputs, outputs)",
        "pmap": "mg.function(..., distribute=mg.distributed.DataParallel())",
        "optim": "mg.optimizer",
        "lax": "mg.scan, mg.while_loop, mg.cond and mg.switch",
        "numpy": "mg itself: its functions have NumPy's names",
        "Module": "mg.nn.Layer, or a function of nodes",
        "Sequential": "mg.nn.Sequential([...]), or mg.NeuralNetwork([...])",
        "no_grad": "nothing: gradients are made where mg.grad asks for them",
        "manual_seed": "mg.random.seed(n)",
        "rand": "mg.random.uniform(shape)",
        "randn": "mg.random.normal(shape)",
        "cat": "mg.concatenate([a, b], axis=)",
        "clamp": "mg.clip(x, low, high)",
        "unsqueeze": "mg.expand_dims(x, axis)",
        "permute": "mg.transpose(x, axes)",
        "gather": "mg.take_along_axis(x, indices, axis)",
        "index_select": "mg.take(x, indices, axis)",
        "mm": "a @ b",
        "bmm": "a @ b",
        "topk": "mg.top_k(x, k)",
        "save": "function.save(path), net.save(path)",
        "pure_callback": "mg.Operation, an operation of one's own",
        # NumPy's
        "amax": "mg.max(x, axis=)",
        "amin": "mg.min(x, axis=)",
        "apply_along_axis": "mg.vmap(f, in_axes=)(x)",
        "apply_over_axes": "mg.vmap(f, in_axes=)(x)",
        "argpartition": "mg.argsort(x), or mg.top_k(x, k) for the largest",
        "around": "mg.round(x, decimals)",
        "asanyarray": "mg.asarray(x)",
        "asarray_chkfinite": "mg.asarray(x), and mg.function(..., nan='raise')",
        "ascontiguousarray": "mg.asarray(x)",
        "asfortranarray": "mg.asarray(x)",
        "bmat": "mg.block([[a, b], [c, d]])",
        "copy": "nothing: a node is a value, and never changes",
        "copyto": "mg.where(mask, values, x), or x.at[...].set(values)",
        "degrees": "mg.rad2deg(x)",
        "einsum_path": "f.report, which tells the order that was chosen",
        "fabs": "mg.abs(x)",
        "fix": "mg.trunc(x)",
        "fromfunction": "mg.indices(shape) and arithmetic",
        "frompyfunc": "mg.Operation, an operation of one's own",
        "genfromtxt": "mg.data.read_csv(path)",
        "i0": "mg.special.i0(x)",
        "issubdtype": "mg.isdtype(x.dtype, 'real floating')",
        "loadtxt": "mg.data.read_csv(path)",
        "matvec": "a @ x",
        "ndim": "x.ndim",
        "partition": "mg.sort(x), or mg.top_k(x, k) for the largest",
        "piecewise": "mg.select(conditions, choices)",
        "place": "x.at[mask].set(values)",
        "polyfit": "mg.linalg.lstsq(mg.vander(x, degree + 1), y)[0]",
        "promote_types": "mg.result_type(a, b)",
        "put": "x.at[indices].set(values)",
        "putmask": "mg.where(mask, values, x)",
        "radians": "mg.deg2rad(x)",
        "rollaxis": "mg.moveaxis(x, source, destination)",
        "row_stack": "mg.vstack([a, b])",
        "shape": "x.shape",
        "size": "x.size",
        "true_divide": "mg.divide(x, y)",
        "vecmat": "x @ a",
        "dot_product_attention": "mg.scaled_dot_product_attention(query, key, value)",
        "hard_tanh": "mg.hardtanh(x)",
        "soft_sign": "mg.softsign(x)",
        # SciPy's, JAX's, PyTorch's, Theano's and TensorFlow's
        "associative_scan": "mg.cumsum, mg.cumprod, mg.linear_recurrence, or mg.scan",
        "boolean_mask": "mg.boolean_index(x, mask, size=n)",
        "convert_to_tensor": "mg.constant(values)",
        "custom_jvp": "mg.custom_gradient",
        "custom_vjp": "mg.custom_gradient",
        "device_put": "nothing: devices are chosen by mg.function(..., device=)",
        "fori_loop": "mg.scan(step, start, length=n), or mg.while_loop",
        "ifelse": "mg.where(condition, x, y), or mg.cond, which computes one side only",
        "inc_subtensor": "x.at[...].add(values)",
        "index_add": "x.at[indices].add(values)",
        "jacfwd": "mg.jacobian(y, x), or mg.jvp",
        "jacrev": "mg.jacobian(y, x)",
        "linearize": "mg.jvp",
        "Lop": "mg.vjp",
        "map_fn": "mg.vmap(f)(x)",
        "masked_fill": "mg.where(mask, value, x)",
        "binary_cross_entropy_with_logits": "mg.binary_cross_entropy(logits, labels)",
        "sigmoid_binary_cross_entropy": "mg.binary_cross_entropy(logits, labels)",
        "sigmoid_cross_entropy_with_logits": "mg.binary_cross_entropy(logits, labels)",
        "softmax_cross_entropy": "mg.cross_entropy(logits, labels)",
        "softmax_cross_entropy_with_logits": "mg.cross_entropy(logits, labels)",
        "mse_loss": "mg.mse(found, wanted)",
        "soft_threshold": "mg.softshrink(x, width)",
        "odeint": "mg.scan(step, start, times), with the step of a method of Runge and Kutta",
        "randn_like": "mg.random.normal(x.shape)",
        "reduce_max": "mg.max(x, axis=)",
        "reduce_mean": "mg.mean(x, axis=)",
        "reduce_sum": "mg.sum(x, axis=)",
        "remat": "mg.checkpoint",
        "Rop": "mg.jvp",
        "scatter_add": "x.at[indices].add(values)",
        "scatter_nd": "mg.zeros(shape).at[indices].add(values)",
        "segment_max": "mg.full(shape, -np.inf).at[segments].max(x)",
        "segment_min": "mg.full(shape, np.inf).at[segments].min(x)",
        "segment_prod": "mg.ones(shape).at[segments].multiply(x)",
        "segment_sum": "mg.zeros(shape).at[segments].add(x)",
        "set_subtensor": "x.at[...].set(values)",
        "shared": "mg.var(name, init=values)",
        "solve_ivp": "mg.scan(step, start, times), with the step of a method of Runge and Kutta",
        **dict.fromkeys(
            ("scalar", "vector", "matrix", "tensor3", "tensor4", "dvector", "dmatrix", "fvector",
             "fmatrix", "ivector"),
            "mg.input(name, shape, dtype)",
        ),
    },
    "magmagraph.linalg": {
        "cho_factor": "mg.linalg.cholesky(a)",
        "inverse": "mg.linalg.inv(a)",
        "logdet": "mg.linalg.slogdet(a)[1]",
        "solve_continuous_lyapunov": "mg.linalg.solve_sylvester(a, a.T, q)",
        "solve_lyapunov": "mg.linalg.solve_sylvester(a, a.T, q)",
    },
    "magmagraph.random": {
        "rand": "mg.random.uniform(shape)",
        "randn": "mg.random.normal(shape)",
        "random": "mg.random.uniform(shape)",
        "PRNGKey": "mg.random.key(n); or mg.random.seed(n), and no keys at all",
        "default_rng": "mg.random.seed(n)",
        "standard_normal": "mg.random.normal(shape)",
        "standard_exponential": "mg.random.exponential(shape)",
        "random_sample": "mg.random.uniform(shape)",
        "random_integers": "mg.random.randint(shape, low, high)",
        "integers": "mg.random.randint(shape, low, high)",
        "Generator": "mg.random.key(n); or mg.random.seed(n), and no generators at all",
        "RandomState": "mg.random.key(n); or mg.random.seed(n), and no generators at all",
    },
    "magmagraph.nn": {
        "Linear": "mg.nn.Dense(units): the number of inputs is that of the layer before",
        "ReLU": "mg.nn.Activation('relu')",
        "Sigmoid": "mg.nn.Activation('sigmoid')",
        "Tanh": "mg.nn.Activation('tanh')",
        "GELU": "mg.nn.Activation('gelu')",
        "SiLU": "mg.nn.Activation('silu')",
        "ELU": "mg.nn.Activation('elu')",
        "LeakyReLU": "mg.nn.Activation(lambda x: mg.leaky_relu(x, slope)), or the name "
        "'leaky_relu'",
        "Parameter": "mg.var(name, init=values), which a layer finds in its attributes",
        "ModuleList": "a list of layers as an attribute",
        "ModuleDict": "a dict of layers as an attribute",
        "TransformerEncoderLayer": "mg.nn.prebuilt.transformer, or MultiHeadAttention, LayerNorm, "
        "Dense and Residual",
        "BCEWithLogitsLoss": "mg.binary_cross_entropy(logits, labels)",
        "Softmax": "mg.nn.Activation('softmax')",
        "BatchNorm2d": "mg.nn.BatchNorm()",
        "Conv2d": "mg.nn.Conv2D(filters, window)",
        "MaxPool2d": "mg.nn.MaxPool2D(window)",
        "Module": "mg.nn.Layer, or a function of nodes",
        "functional": "mg itself: mg.relu, mg.softmax, mg.cross_entropy",
        "CrossEntropyLoss": "mg.cross_entropy(logits, labels)",
        "MSELoss": "mg.mse(found, wanted)",
    },
}


def missing(module: str, name: str) -> AttributeError:
    """Make (not raise) the error for a name that a module does not have."""
    text = f"module {module!r} has no attribute {name!r}"
    hint = OF_MODULE[module].get(name)
    return AttributeError(message(text, hint=hint), name=name, obj=sys.modules.get(module))


def missing_of_node(node: object, name: str) -> AttributeError:
    """Make (not raise) the error for a name that nodes do not have."""
    text = f"{type(node).__name__!r} object has no attribute {name!r}"
    hint = OF_NODE.get(name)
    if hint is None and name in (package := sys.modules["magmagraph"]).__all__:
        function = getattr(package, name)
        hint = f"mg.{name}(x)" if callable(function) and not isinstance(function, type) else None
    if name in ("item", "tolist", "numpy") and hasattr(node, "assign"):
        hint = "x.value, an array"
    if name in ("dtype", "shape", "ndim", "size"):  # asked for here where it has no one type
        hint = "that of each of its results: it has several"
    return AttributeError(message(text, hint=hint), name=name, obj=node)
