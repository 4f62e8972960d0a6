"""Steps without a kernel: rows of the report, warnings, and errors that are raised."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import CompilerUnavailable, DeviceError
from magmagraph.ir import fallback
from magmagraph.ir.fallback import Fallback, Fallbacks, Refused
from magmagraph.ir.graph import Trace, freeze
from magmagraph.ir.plan import Plan, Role, Step
from magmagraph.passes import pipeline
from magmagraph.runtime import target
from magmagraph.runtime.cpu import backend
from magmagraph.runtime.cuda import bound, namespace
from magmagraph.runtime.cuda.library import cudnn
from magmagraph.runtime.cuda.products import cublaslt
from magmagraph.runtime.families import FAMILIES

compiled = pytest.mark.skipif(
    mg.config.compiler == "off", reason="no kernels without a compiler"
)


@pytest.fixture(autouse=True)
def _nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "_warned", set())


@pytest.fixture(autouse=True)
def _sorts_have_no_family(monkeypatch: pytest.MonkeyPatch) -> None:
    families = tuple(family for family in FAMILIES if not family.takes(mg.sort([1.0])))
    families = (*families, *(f for f in FAMILIES if f.role is Role.EXPRESSION))
    monkeypatch.setattr(target, "FAMILIES", families)


def joined() -> mg.Function:
    """Return a function of which one step is a join."""
    x = mg.input("x", (4, 3))
    return mg.function([x], mg.concatenate([x, mg.sort(x, axis=0)], axis=1))


def joining_as(cpu: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a builder make the functions of joins in what is compiled from here on."""
    families = [replace(f, cpu=cpu) if f.name == "join" else f for f in target.FAMILIES]
    monkeypatch.setattr(target, "FAMILIES", tuple(families))


FEED = np.arange(12, dtype="f4").reshape(4, 3)


# ---- The CPU


@compiled
def test_an_operation_without_a_family_is_a_row_and_no_warning() -> None:
    f = joined()
    f(FEED)
    (row,) = f.report.fallbacks
    assert (row.node.op.name, row.wanted, row.taken) == ("sort", "", "array expression (NumPy)")
    assert (row.reason, row.expected) == ("no kernel family", True)
    line = f"step {row.step}: sort : float32[4, 3], made at {row.node.line}"
    assert f"kernels: array expression (NumPy): no kernel family\n    {line}" in str(f.report)
    (told,) = json.loads(f.report.to_json())[-1]["fallbacks"]
    assert (told["step"], told["node"]) == (row.step, "sort : float32[4, 3]")
    assert (told["line"], told["reason"]) == (str(row.node.line), "no kernel family")
    assert line in str(f.report["kernels"])


@compiled
def test_explain_says_what_runs_a_step_and_why() -> None:
    x = mg.input("x", (4, 3))
    ordered = mg.sort(x, axis=0)
    f = mg.function([x], mg.exp(ordered))
    assert "array expression (NumPy): no kernel family" in str(f.explain(ordered))
    (use,) = f.explain(ordered).kernels
    assert use.fallbacks == ("array expression (NumPy): no kernel family",)
    (other,) = f.explain(f._user_outputs[0]).kernels
    assert other.fallbacks == ()


@compiled
def test_a_dtype_that_a_family_does_not_take_is_a_row() -> None:
    x, w = mg.input("x", (1, 2, 5, 5), "float16"), mg.input("w", (2, 2, 3, 3), "float16")
    values, places = mg.input("values", (4,)), mg.input("places", (2,), "int16")
    results = [mg.conv(x, w), mg.take(values, places, axis=0)]
    f = mg.function([x, w, values, places], results).compile()
    rows = [(row.wanted, row.reason, row.expected) for row in f.report.fallbacks if row.wanted]
    assert sorted(rows) == [
        ("convolution", "compiled convolutions take float32 and float64, not float16", True),
        ("indexed", "positions are int32 or int64, not int16", True),
    ]


@compiled
def test_a_loop_whose_body_runs_in_python_is_a_row() -> None:
    xs = mg.input("xs", (3, 4))
    f = mg.function([xs], mg.scan(lambda c, x: (c + mg.sort(x, axis=0), c), mg.zeros((4,)), xs)[0])
    f(np.ones((3, 4), "f4"))
    rows = [row for row in f.report.fallbacks if row.wanted == "loop"]
    assert [row.reason for row in rows] == ["a step of its body runs as an array expression"]


@compiled
def test_what_is_not_compiled_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    x = mg.input("x", (4, 3))
    f = mg.function([x], mg.exp(x) + 1.0, compile_budget=0.0).compile()
    (row,) = f.report.fallbacks
    assert (row.wanted, row.taken) == ("fused", "array expressions of tiles (NumPy)")
    assert row.reason == "the compile budget is spent"
    monkeypatch.setattr(mg.config, "compiler", "off")
    f = mg.function([x], mg.exp(x) + 1.0).compile()
    assert [row.reason for row in f.report.fallbacks] == ["MAGMAGRAPH_COMPILER=off"]


def test_without_a_compiler_there_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*bodies: Any) -> None:
        raise CompilerUnavailable("there is no compiler\n  try: another machine")

    monkeypatch.setattr(mg.config, "compiler", "auto")
    monkeypatch.setattr(backend.fused.Kernels, "build", build)
    monkeypatch.setattr(backend, "support", build)  # nor did a wheel bring kernels
    monkeypatch.setattr(backend, "_warned", type(backend._warned)())
    x, y = mg.input("x", (4, 3)), mg.input("y", (3, 2))
    with pytest.warns(mg.FallbackWarning, match="there is no compiler") as caught:
        f = mg.function([x, y], [mg.exp(x), x @ y]).compile()
        mg.function([x], mg.tanh(x)).compile()
    assert len(caught) == 1
    assert {row.wanted for row in f.report.fallbacks} == {"fused", "gemm"}
    assert {row.reason for row in f.report.fallbacks} == {
        "kernels are not compiled: there is no compiler"
    }


@compiled
def test_a_builder_that_refuses_is_a_row_and_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(cells: Any, step: Step, number: int) -> Any:
        raise Refused("it is a made-up machine")

    joining_as(refuse, monkeypatch)
    x = mg.input("x", (4, 3))
    with pytest.warns(mg.FallbackWarning) as caught:
        f = mg.function([x], mg.concatenate([x, mg.sort(x, axis=0)], axis=1))
        assert np.array_equal(f(FEED), np.concatenate([FEED, FEED], 1))
        f(FEED)
        joined()(FEED)  # the same operation and reason
    (warning,) = caught
    line = f._user_outputs[0].line
    assert (warning.filename, warning.lineno) == (line.file, line.number)
    assert "instead of join: it is a made-up machine" in str(warning.message)
    (row,) = [row for row in f.report.fallbacks if row.wanted]
    assert (row.wanted, row.reason, row.expected) == ("join", "it is a made-up machine", False)
    assert "array expression (NumPy) instead of join: it is a made-up machine" in str(f.report)


@compiled
def test_a_builder_that_fails_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(cells: Any, step: Step, number: int) -> Any:
        raise ZeroDivisionError("an error of ours")

    joining_as(fail, monkeypatch)
    with pytest.raises(ZeroDivisionError, match="an error of ours"):
        joined()(FEED)


def test_errors_of_an_expression_that_is_written_down_are_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from magmagraph.runtime.cpu.ufunc_tape import NotRecordable, UfuncTape

    script = UfuncTape()
    x = script.given((3,), np.dtype("f4"))
    for error in (TypeError, AttributeError, ValueError):
        with pytest.raises(NotRecordable):
            script.expression(lambda xp, a, error=error: (_ for _ in ()).throw(error), (x,), {})
    with pytest.raises(ZeroDivisionError):
        script.expression(lambda xp, a: 1 // 0, (x,), {})


# ---- Rows


def test_a_row_is_noted_once_and_warned_about_once() -> None:
    node = mg.exp(mg.input("x", (3,)))
    step = Step(target.made_up().family(node), node, (), (), 0)
    rows = Fallbacks()
    for number in (0, 0, 1):
        rows.note(number, step, fallback.ON_HOST, Refused("no such\n  function " + "x" * 400))
    first, second = rows
    assert (first.step, second.step) == (0, 1)
    assert first.reason.startswith("no such function xx") and len(first.reason) == 300
    assert first == Fallback(0, mg.exp(mg.input("y", (4,))), *(
        getattr(first, name) for name in ("wanted", "taken", "reason")
    ))
    with pytest.warns(mg.FallbackWarning) as caught:
        rows.warn()
        rows.warn()
    assert len(caught) == 1


# ---- A device that is made up


def planned(node: Any, *inputs: Any) -> Plan:
    """Return a plan for a CUDA device."""
    trace = Trace()
    options = pipeline.Options.make(target=target.made_up("cuda:0"))
    plan, _ = pipeline.run(freeze(inputs, [node], trace=trace), trace, options=options)
    return plan


class Made(bound.CudaBound):
    """A plan bound to a device whose memory is the host's, and whose library is NumPy."""

    def __init__(self, plan: Plan, launches: Any) -> None:
        self.plan = plan
        fallbacks = Fallbacks()
        self.prepared: Any = SimpleNamespace(on_host=set(), carriers=None, fallbacks=fallbacks)
        self.stream: Any = contextlib.nullcontext()
        cupy = SimpleNamespace(asnumpy=np.asarray, asarray=np.asarray)
        self.device: Any = SimpleNamespace(cupy=cupy)
        arrays: dict[int, np.ndarray] = {}
        for step in plan.steps:
            for value in (*step.inputs, *step.outputs):
                arrays.setdefault(value.slot, np.ones(value.type.shape, value.type.dtype))
        self.arrays = arrays
        self.memory: Any = SimpleNamespace(
            sizes={}, counts=SimpleNamespace(flag=lambda step: None),
            view=lambda value: arrays[value.slot],
        )  # fmt: skip
        self._make: Any = SimpleNamespace(step=launches)

    def parts(self) -> list[Any]:
        return self._segments(0, len(self.plan.steps))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return what makes a bound plan of one step, `sort`, which NumPy computes or an error ends."""
    error = type("CompileException", (Exception,), {})
    compiler = SimpleNamespace(CompileException=error)
    cupy = SimpleNamespace(cuda=SimpleNamespace(compiler=compiler))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(bound, "refusing", contextlib.nullcontext)

    def make(launches: Any = lambda step: None, error: Exception | None = None) -> Made:
        def sort(*given: Any, **options: Any) -> Any:
            if error is not None:
                raise error
            return np.sort(*given, **options)

        xp = namespace._Namespace(SimpleNamespace(sort=sort), np)
        monkeypatch.setattr(bound, "array_namespace", lambda: xp)
        x = mg.input("x", (4, 3))
        plan = planned(mg.sort(x, axis=0), x)
        assert [step.kernel for step in plan.steps] == ["array"]
        return Made(plan, launches)

    return make


def test_an_array_expression_on_a_device_is_its_way(made: Any) -> None:
    plan = made()
    (part,) = plan.parts()
    part.run()
    (row,) = plan.prepared.fallbacks
    assert (row.taken, row.reason, row.expected) == (
        "array expression (CuPy)", "no kernel family", True
    )


def test_a_launch_that_is_refused_is_a_row(made: Any) -> None:
    def refuse(step: Step) -> Any:
        raise Refused("cuDNN refuses it: too many groups")

    plan = made(refuse)
    (part,) = plan.parts()
    part.run()
    (row,) = plan.prepared.fallbacks
    assert (row.taken, row.expected) == ("array expression (CuPy)", False)
    with pytest.warns(mg.FallbackWarning, match="sort runs as array .*: too many groups"):
        plan.prepared.fallbacks.warn()


@pytest.mark.parametrize("kind", [RuntimeError, TypeError, KeyError, AssertionError])
def test_an_error_in_what_makes_a_launch_is_raised(made: Any, kind: type[Exception]) -> None:
    def fail(step: Step) -> Any:
        raise kind("an error of ours")

    with pytest.raises(kind, match="an error of ours"):
        made(fail).parts()


@pytest.mark.parametrize("kind", [AttributeError, NotImplementedError, TypeError, KeyError])
def test_what_cupy_does_not_have_runs_on_the_host_with_a_warning(
    made: Any, kind: type[Exception]
) -> None:
    plan = made(error=kind("of float32"))
    plan.arrays[plan.plan.steps[0].inputs[0].slot][...] = -FEED
    (part,) = plan.parts()
    with pytest.warns(mg.FallbackWarning, match=r"on the host .*: CuPy: .*of float32") as caught:
        part.run()
        part.run()
    assert len(caught) == 1
    assert np.array_equal(plan.arrays[plan.plan.steps[0].outputs[0].slot], np.sort(-FEED, 0))
    *_, row = plan.prepared.fallbacks
    assert (row.taken, row.expected) == ("array expression on the host (NumPy)", False)
    assert plan.prepared.on_host == {plan.plan.steps[0].node.op}


@pytest.mark.parametrize("kind", [RuntimeError, MemoryError, ZeroDivisionError, DeviceError])
def test_other_errors_of_an_expression_are_raised(made: Any, kind: type[Exception]) -> None:
    plan = made(error=kind("the device is lost"))
    (part,) = plan.parts()
    with pytest.raises(kind, match="the device is lost"):
        part.run()
    assert not plan.prepared.on_host


def test_values_that_the_solver_gives_up_are_the_hosts_for_one_call(made: Any) -> None:
    plan = made(error=np.linalg.LinAlgError("info 3"))
    (part,) = plan.parts()
    with pytest.warns(mg.FallbackWarning, match="cuSOLVER finds no solution"):
        part.run()
    assert not plan.prepared.on_host


# ---- Libraries of a device


def test_a_graph_that_cudnn_refuses_says_why_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Graph:
        def __init__(self, device: Any, key: Any, *given: Any, **options: Any) -> None:
            made.append(key)
            if isinstance(key, Exception):
                raise key

    device = SimpleNamespace(number=0, errors=(OSError,))
    monkeypatch.setattr(cudnn, "LibraryGraph", Graph)
    monkeypatch.setattr(cudnn, "_graphs", {})
    key = RuntimeError("no engine\n  for it")
    for _ in range(2):
        with pytest.raises(Refused, match="cuDNN refuses it: no engine for it"):
            cudnn.graph_of(device, key, lambda graph: ([], []), "float32", [])
    assert len(made) == 1
    for error in (TypeError("an error of ours"), DeviceError("no room"), OSError("lost")):
        with pytest.raises(type(error)):
            cudnn.graph_of(device, error, lambda graph: ([], []), "float32", [])


@pytest.mark.parametrize("library", [cudnn, cublaslt], ids=["cuDNN", "cuBLASLt"])
def test_a_library_that_is_missing_is_a_refusal(
    library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "why_unavailable", lambda: "ModuleNotFoundError: none here")
    with pytest.raises(Refused, match="cannot be used: ModuleNotFoundError: none here"):
        library.check_available()


@pytest.mark.gpu
def test_an_operation_that_cupy_does_not_have_warns_on_a_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sort(*given: Any, **options: Any) -> Any:
        raise NotImplementedError("no sort")

    real = bound.array_namespace()
    monkeypatch.setattr(bound, "array_namespace", lambda: namespace._Namespace(
        SimpleNamespace(sort=sort), real
    ))
    x = mg.input("x", (4, 3))
    f = mg.function([x], mg.exp(mg.sort(x, axis=0)), device="cuda")
    with pytest.warns(mg.FallbackWarning, match="NotImplementedError: no sort") as caught:
        results = [np.asarray(f(FEED).get()) for _ in range(3)]
    assert len(caught) == 1
    assert all(np.allclose(result, np.exp(np.sort(FEED, 0))) for result in results)
    assert "on the host (NumPy)" in str(f.report)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mg.function([x], mg.exp(x), device="cuda")(FEED)
