"""Array programs written once and given to every library, in the way its users would.

A program is a function ``program(xp, *arrays)`` over names that array libraries share; where a
library has a better word of its own (`torch.softmax`), its namespace here has it. Arrays go in as
the library's own, made before; results are fresh arrays of the library, unless said otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import peers

Program = Callable[..., Any]
Make = Callable[[peers.Case], Sequence[np.ndarray]]


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _work(call: Callable[[], Any], array: Callable[[Any], Any] = np.asarray) -> peers.Work:
    return peers.Work(
        call, lambda: {f"r{i}": array(result) for i, result in enumerate(_listed(call()))}
    )


def _norm(xp: Any, x: Any) -> Any:
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def namespace_of(library: str) -> Any:
    """Return a library's functions under shared names."""
    if library == "magmagraph":
        import magmagraph as mg

        return mg
    if library == "jax":
        import jax
        import jax.numpy as jnp

        return _over(
            jnp, sigmoid=jax.nn.sigmoid, softmax=jax.nn.softmax, erf=jax.scipy.special.erf,
            logsumexp=jax.scipy.special.logsumexp,
            layer_norm=lambda x: _norm(jnp, x),
        )
    if library == "torch":
        import torch
        from torch.nn import functional

        return _over(
            torch,
            softmax=lambda x, axis: torch.softmax(x, dim=axis),
            logsumexp=lambda x, axis: torch.logsumexp(x, dim=axis),
            layer_norm=lambda x: functional.layer_norm(x, x.shape[-1:]),
        )
    if library == "pytensor":
        import pytensor.tensor as pt

        return _over(pt, softmax=pt.special.softmax, layer_norm=lambda x: _norm(pt, x))
    from scipy import special

    return _over(
        np, sigmoid=lambda x: 1 / (1 + np.exp(-x)), erf=special.erf, softmax=special.softmax,
        logsumexp=special.logsumexp, layer_norm=lambda x: _norm(np, x),
    )


def _over(module: Any, **names: Any) -> Any:
    """Return the module's namespace with some names replaced."""
    return SimpleNamespace(**{**vars(module), **names})


def magmagraph(
    program: Program, make: Make, case: peers.Case, *, reuse: bool = False
) -> peers.Work:
    """`mg.function` of the program, with fresh results or into the same ones.

    A case of this process may bring its "arrays".
    """
    import magmagraph as mg

    arrays = case.get("arrays") or make(case)
    inputs = [mg.var(f"x{i}", shape=a.shape, dtype=a.dtype) for i, a in enumerate(arrays)]
    made = program(mg, *inputs)
    function = mg.function(inputs, made if isinstance(made, mg.Node) else list(made))
    if not reuse:
        return _work(lambda: function(*arrays))
    first = function(*arrays)
    copies = [np.empty_like(a) for a in _listed(first)]
    out = copies if isinstance(first, list) else copies[0]
    return _work(lambda: function(*arrays, out=out))


def jax(program: Program, make: Make, case: peers.Case) -> peers.Work:
    """`jax.jit` of the program."""
    import jax

    arrays = [jax.numpy.asarray(a) for a in make(case)]
    jitted = jax.jit(functools.partial(program, namespace_of("jax")))
    return _work(lambda: jax.block_until_ready(jitted(*arrays)))


def torch(program: Program, make: Make, case: peers.Case, *, compiled: bool) -> peers.Work:
    """The program on tensors, as it is or by `torch.compile`."""
    import torch

    arrays = [torch.from_numpy(a) for a in make(case)]
    function = functools.partial(program, namespace_of("torch"))
    if compiled:
        xp = namespace_of("torch")
        function = torch.compile(lambda *given: program(xp, *given), dynamic=False)

    def call() -> Any:
        with torch.no_grad():
            return function(*arrays)

    return _work(call, lambda tensor: tensor.numpy())


def pytensor(program: Program, make: Make, case: peers.Case) -> peers.Work:
    """`pytensor.function` of the program, in the default mode."""
    import pytensor
    import pytensor.tensor as pt

    arrays = list(make(case))
    pytensor.config.floatX = "float32"
    inputs = [pt.tensor(f"x{i}", dtype=a.dtype, shape=a.shape) for i, a in enumerate(arrays)]
    made = program(namespace_of("pytensor"), *inputs)
    function = pytensor.function(inputs, list(made) if isinstance(made, tuple) else made)
    return _work(lambda: function(*arrays))


def numpy(program: Program, make: Make, case: peers.Case) -> peers.Work:
    """The program in plain NumPy."""
    arrays = make(case)
    xp = namespace_of("numpy")
    return _work(lambda: program(xp, *arrays))


def contenders(
    programs: Mapping[str, Program], make: Make, *, reuse: bool = True
) -> dict[str, peers.Contender]:
    """Return every library's contender for cases that name their "program"."""

    def of(function: Callable[..., peers.Work], **options: Any) -> peers.Contender:
        return lambda case: function(programs[case["program"]], make, case, **options)

    found = {"magmagraph": of(magmagraph)}
    if reuse:
        found["magmagraph, out="] = of(magmagraph, reuse=True)
    return found | {
        "jax": of(jax),
        "torch": of(torch, compiled=False),
        "torch.compile": of(torch, compiled=True),
        "pytensor": of(pytensor),
        "numpy": of(numpy),
    }


def copying(make: Make, case: peers.Case) -> peers.Work:
    """Copy the first array, a part a thread: what reading and writing it once costs."""
    import os
    from concurrent.futures import ThreadPoolExecutor

    source = make(case)[0].reshape(-1)
    target = np.empty_like(source)
    parts = len(os.sched_getaffinity(0)) if source.nbytes > 1 << 20 else 1
    edges = [len(source) * i // parts for i in range(parts + 1)]
    pool = ThreadPoolExecutor(parts)

    def copy(i: int) -> None:
        np.copyto(target[edges[i] : edges[i + 1]], source[edges[i] : edges[i + 1]])

    def call() -> None:
        if parts == 1:
            copy(0)
        else:
            list(pool.map(copy, range(parts)))

    return peers.Work(call, dict)
