"""Names that other libraries have for what is here: looked up only where a name is missing."""

from __future__ import annotations

import sys

from .errors import message

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

OF_MODULE = {
    "magmagraph": {
        "array": "mg.constant(values), or mg.var(name, init=values) for what changes",
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
    },
    "magmagraph.random": {
        "rand": "mg.random.uniform(shape)",
        "randn": "mg.random.normal(shape)",
        "random": "mg.random.uniform(shape)",
        "PRNGKey": "mg.random.key(n); or mg.random.seed(n), and no keys at all",
        "default_rng": "mg.random.seed(n)",
        "standard_normal": "mg.random.normal(shape)",
        "integers": "mg.random.randint(shape, low, high)",
    },
    "magmagraph.nn": {
        "Linear": "mg.nn.Dense(units): the number of inputs is that of the layer before",
        "ReLU": "mg.nn.Activation('relu')",
        "Sigmoid": "mg.nn.Activation('sigmoid')",
        "Tanh": "mg.nn.Activation('tanh')",
        "GELU": "mg.nn.Activation('gelu')",
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
    mend = OF_MODULE[module].get(name)
    return AttributeError(message(text, mend=mend), name=name, obj=sys.modules.get(module))


def missing_of_node(node: object, name: str) -> AttributeError:
    """Make (not raise) the error for a name that nodes do not have."""
    text = f"{type(node).__name__!r} object has no attribute {name!r}"
    mend = OF_NODE.get(name)
    if name in ("dtype", "shape", "ndim", "size"):  # asked for here where it has no one type
        mend = "that of each of its results: it has several"
    return AttributeError(message(text, mend=mend), name=name, obj=node)
