"""Names that other libraries have for what is here: looked up only where a name is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ..errors import message

__all__ = ["missing", "missing_of_node", "near_name"]

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
    "named_parameters": "layer.paths(), by attribute path; layer.weights(), by name",
    "trainable_weights": "layer.trainable_variables",
    "state_dict": "{name: w.variable.value for name, w in layer.weights().items()}",
    "load_state_dict": "layer.weights()[name].variable.assign(array) for each name",
    "forward": "layer(x), which runs its method `call`, or `forward` of your own class",
    "train": "layer(x, training=True)",
    "eval": "layer(x), without training=True",
    "register_buffer": "self.weight(name, shape, init, trainable=False), in `build`",
    "register_parameter": "self.weight(name, shape, init), in `build`",
    "add_weight": "self.weight(name, shape, init), in `build`",
    "modules": "layer.layers()",
    "requires_grad_": "layer.trainable = False",
    "cpu": "nothing: devices are chosen by mg.function(..., device=)",
    "half": "mg.function(..., precision='float16')",
    "apply": "layer(x)",
    "zero_grad": "nothing: gradients are nodes, built again where mg.grad asks for them",
    "to": "nothing: devices are chosen by mg.function(..., device=)",
    "cuda": "nothing: devices are chosen by mg.function(..., device=)",
}

_NO_DEVICE = "nothing: devices are chosen by mg.NeuralNetwork(..., device=)"
_SWITCHED = "nothing: fit applies layers as in training, predict and evaluate do not; of nodes, " \
    "net(x, training=True)"

OF_MODEL = {
    "load_state_dict": "net.load_torch(state), or net.load_weights(path)",
    "get_weights": "net.tensors(), arrays by name",
    "set_weights": "net.set_tensors(arrays), by name",
    "named_parameters": "net.weights(), by name",
    "trainable_variables": "net.trainable",
    "trainable_weights": "net.trainable",
    "variables": "[weight.variable for weight in net.weights().values()]",
    "count_params": "net.parameters",
    "modules": "net.layers",
    "children": "net.layers",
    "train": _SWITCHED,
    "eval": _SWITCHED,
    "forward": "net(x), of nodes or arrays",
    "call": "net(x), of nodes or arrays",
    "zero_grad": "nothing: gradients are nodes, and net.step(x, y) does a whole step",
    "backward": "net.step(x, y), which does a whole step; or mg.grad(loss, net.trainable)",
    "train_on_batch": "net.step(x, y), which does a step; net.fit(x, y) checks the data, too",
    "test_on_batch": "net.evaluate(x, y)",
    "predict_on_batch": "net.predict(x)",
    "predict_proba": "net.predict(x); magmagraph.estimators.MLPClassifier is scikit-learn's form",
    "predict_classes": "net.predict_class(x)",
    "score": "net.evaluate(x, y)['accuracy']; magmagraph.estimators.MLPClassifier is "
    "scikit-learn's form",
    "transform": "net.predict(x)",
    "fit_generator": "net.fit(batches)",
    "evaluate_generator": "net.evaluate(batches)",
    "compile": "mg.NeuralNetwork(layers, loss=..., optimizer=..., metrics=[...])",
    "add": "mg.NeuralNetwork([layer, layer, ...]), a list of all layers",
    "requires_grad_": "net.freeze(), or net.freeze(where) for some of its weights",
    "half": "mg.NeuralNetwork(..., precision='float16')",
    "to": _NO_DEVICE,
    "cuda": _NO_DEVICE,
    "cpu": _NO_DEVICE,
    "save_model": "net.save(path)",
    "to_json": "net.architecture()",
    "get_config": "net.architecture()",
    "plot_model": "net.show().save('net.svg')",
}

# Losses and metrics by the names that Keras and PyTorch have for them.
OF_LOSS = {
    "mean_squared_error": "mse",
    "MSELoss": "mse",
    "mean_absolute_error": "mae",
    "L1Loss": "mae",
    "l1": "mae",
    "l2": "mse",
    "categorical_crossentropy": "cross_entropy",
    "sparse_categorical_crossentropy": "cross_entropy",
    "crossentropy": "cross_entropy",
    "CrossEntropyLoss": "cross_entropy",
    "binary_crossentropy": "binary_cross_entropy",
    "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy",
    "NLLLoss": "nll_loss",
    "kl_div": "kl_divergence",
    "SmoothL1Loss": "smooth_l1",
    "HuberLoss": "huber",
    "acc": "accuracy",
    "sparse_categorical_accuracy": "accuracy",
    "binary_accuracy": "accuracy",
    "roc_auc": "auc",
    "rocauc": "auc",
    "f1_score": "f1",
    "r2_score": "r2",
}

OF_OPTIMIZER = {
    "zero_grad": "nothing: gradients are nodes, built again for each step",
    "param_groups": "optimizer.learning_rate = rate; settings of groups are given to "
    "optimizer.step(loss, [{'wrt': [w], ...}])",
    "lr": "optimizer.learning_rate",
    "apply": "optimizer.apply_gradients({variable: gradient})",
    "init": "nothing: the state is made by the first step",
    "add_param_group": "optimizer.step(loss, [{'wrt': [w]}, {'wrt': [b], 'learning_rate': 0.1}])",
}

_SCHEDULES = {
    "StepLR": "mg.schedule.step(rate, every, factor), given to an optimizer as its rate",
    "MultiStepLR": "mg.schedule.step(rate, every, factor), or a function of the step",
    "ExponentialLR": "mg.schedule.exponential(rate, decay), given to an optimizer as its rate",
    "ExponentialDecay": "mg.schedule.exponential(rate, decay), given to an optimizer as its rate",
    "CosineAnnealingLR": "mg.schedule.cosine(rate, steps), given to an optimizer as its rate",
    "CosineDecay": "mg.schedule.cosine(rate, steps), given to an optimizer as its rate",
    "OneCycleLR": "mg.schedule.warmup(steps, mg.schedule.cosine(rate, all_steps))",
    "LinearLR": "mg.schedule.warmup(steps, rate)",
    "LambdaLR": "a function of the step, given to an optimizer as its rate",
    "ReduceLROnPlateau": "mg.callbacks.ReduceOnPlateau(), or mg.schedule.plateau(rate)",
}

OF_MODULE = {
    "magmagraph": {
        "array": "mg.constant(values); mg.asarray([[a, 0.0], [b, c]]) of numbers and nodes; "
        "mg.var(name, init=values) for what changes",
        "tensor": "mg.constant(values), or mg.var(name, init=values) for what changes",
        "placeholder": "mg.input(name, shape)",
        "Parameter": "mg.var(name, init=values)",
        "compile": "mg.jit(function), of arrays, or mg.function(inputs, outputs), of nodes",
        "flatten": "mg.ravel(x); mg.reshape(x, (x.shape[0], -1)) and mg.nn.Flatten() keep the rows",
        "from_numpy": "mg.constant(array), or feed the array",
        "device": "mg.function(..., device='cuda'), or mg.config.device = 'cuda'",
        "cuda": "mg.function(..., device='cuda'), or mg.config.device = 'cuda'",
        "load_model": "mg.NeuralNetwork.load(path)",
        "DataLoader": "mg.batches(x, y, size=32); fit takes a DataLoader of torch, too",
        "utils": "mg.data and mg.batches",
        "keras": "mg.nn, mg.NeuralNetwork and mg.callbacks",
        "layers": "mg.nn",
        "losses": "mg itself: mg.cross_entropy, mg.mse",
        "optimizers": "mg.optimizer",
        "models": "mg.NeuralNetwork and mg.Model",
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
        "flatten": "mg.nn.Flatten()",
        "DataLoader": "mg.batches(x, y, size=32); fit takes a DataLoader of torch, too",
        "Dropout2d": "mg.nn.SpatialDropout(rate)",
        "Identity": "nothing, or mg.nn.Activation('linear')",
        "Tensor": "mg.var(name, shape), or mg.Tensor",
        "utils": "mg.optimizer.Adam(1e-3, clip_norm=1.0), for the norm of gradients",
        "init": "mg.init",
    },
    "magmagraph.data": {
        "DataLoader": "mg.batches(x, y, size=32), or mg.data.prefetch(batches); fit takes a "
        "DataLoader of torch, too",
        "TensorDataset": "mg.batches(x, y, size=32), or fit(x, y)",
        "Subset": "x[rows], y[rows]",
        "random_split": "fit(x, y, validation_split=0.1), or rows of the arrays",
        "utils": "mg.batches(x, y, size=32)",
    },
    "magmagraph.optimizer": _SCHEDULES | {
        "lr_scheduler": "mg.schedule: mg.optimizer.Adam(mg.schedule.cosine(1e-3, steps))",
        "schedules": "mg.schedule",
        "Nadam": "mg.optimizer.Adam, or mg.optimizer.SGD(rate, momentum=0.9, nesterov=True)",
        "Adagrad": "mg.optimizer.AdaGrad(rate)",
        "RMSprop": "mg.optimizer.RMSProp(rate)",
        "adam": "mg.optimizer.Adam(rate)",
        "sgd": "mg.optimizer.SGD(rate)",
    },
    "magmagraph.schedule": _SCHEDULES,
    "magmagraph.callbacks": {
        "ModelCheckpoint": "mg.callbacks.Checkpoint(path, monitor='val_loss') writes after the "
        "best epochs; net.load_weights(path) reads it",
        "BackupAndRestore": "mg.callbacks.Checkpoint(path), and fit(..., resume=path)",
        "LearningRateScheduler": "mg.callbacks.LearningRate(function of the epoch)",
        "ReduceLROnPlateau": "mg.callbacks.ReduceOnPlateau(factor=0.1, patience=10)",
        "CSVLogger": "mg.callbacks.CSVLog(path)",
        "TensorBoard": "mg.callbacks.EventLog(folder)",
        "LambdaCallback": "a function of epoch and record: fit(..., callbacks=[function])",
        "TerminateOnNaN": "nothing: fit raises DivergedError, which names what made the NaN",
        "ProgbarLogger": "fit(..., verbose=1)",
        "History": "net.fit(...), which returns it",
    },
}


def near_name(given: object, known: Iterable[str]) -> str | None:
    """Return the name of a loss or metric that is meant, quoted, or None.

    Examples
    --------
    >>> near_name("sparse_categorical_crossentropy", ["cross_entropy", "mse"])
    "'cross_entropy'"
    >>> near_name("acuracy", ["accuracy"]), near_name("acc", ["mse"])
    ("'accuracy'", None)
    """
    import difflib  # only errors need it

    names = list(known)
    other = OF_LOSS.get(str(given))
    found = [other] if other in names else difflib.get_close_matches(str(given), names, 1)
    return repr(found[0]) if found else None


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
