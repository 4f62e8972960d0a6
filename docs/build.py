"""Write what pages take from the code: tables of operations and passes, and what examples print.

``python docs/build.py`` writes them; a test holds them up to date.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Measured choices would differ from machine to machine, and with them what pages show.
os.environ["MAGMAGRAPH_TUNING"] = "0"

sys.path.insert(0, str(Path(__file__).resolve().parent))
import library_coverage

import magmagraph
from magmagraph import passes
from magmagraph.inspect.onnx_export import reason_of
from magmagraph.interchange.onnx.table import FAMILIES
from magmagraph.ir.op import Composite, Kind, Op
from magmagraph.ops import TABLE
from magmagraph.ops.rules.onnx_pairs import Pairs

HERE = Path(__file__).resolve().parent
NOTE = "<!-- Made by docs/build.py from the code: change it there, then run `make docs`. -->"


def pages() -> dict[Path, str]:
    """Return the text of each page that the code has a part in, as it should be."""
    made = {
        HERE / "ops.md": operations,
        HERE / "passes.md": pipeline,
        HERE / "onnx.md": onnx_forms,
        HERE / "networks.md": networks,
        HERE / "coverage.md": library_coverage.page,
        Path(magmagraph.__file__).with_suffix(".pyi"): public_types,
    }
    found = {page: page_of() for page, page_of in made.items()}
    return found | {page: with_output(page) for page in written() if page not in made}


def written() -> list[Path]:
    """Return the pages that show Python."""
    root = HERE.parent
    every = [root / "README.md", root / "CONTRIBUTING.md", *sorted(HERE.rglob("*.md"))]
    return [page for page in every if "```python\n" in page.read_text(encoding="utf-8")]


def public_types() -> str:
    """Return the stub with which type checkers find the package's public names."""
    entries: dict[str, list[str]] = {}
    for public, (module, name) in sorted({**magmagraph._NOW, **magmagraph._LATER}.items()):
        place = f".{module}" if name else f".{module}".rpartition(".")[0] or "."
        entries.setdefault(place, []).append(f"{name or public} as {public}")
    lines = [f"# {NOTE.strip('<>!- ')}"]
    lines += ["from typing import Any as _Any", "from numpy import dtype as _dtype"]
    for place, names in sorted(entries.items()):
        lines += [f"from {place} import (", *in_lines([f"{name}," for name in names]), ")"]
    lines += [f"{name}: _dtype[_Any]" for name in magmagraph._DTYPES]
    lines += ["__all__ = [", *in_lines([f'"{name}",' for name in magmagraph.__all__]), "]", ""]
    return "\n".join(lines)


def in_lines(words: list[str]) -> list[str]:
    """Return entries in indented lines, none cut in two."""
    whole = " ".join(word.replace(" ", "~") for word in words)
    lines = textwrap.wrap(whole, 100, initial_indent=" " * 4, subsequent_indent=" " * 4)
    return [line.replace("~", " ") for line in lines]


def operations() -> str:
    """Return the page of all operations, by kind and name."""
    public = sum(record.function is not None for record in TABLE.values())
    parts = [
        "# Operations",
        NOTE,
        f"{len(TABLE)} records, {public} of them functions of `magmagraph`; the others are made "
        "by operators, by `magmagraph` itself or by passes. The *gradient* is a graph of these "
        "operations again; where there is none, the column says why. *C* marks what generated "
        "kernels can compute inside a fused region.",
    ]
    for kind in Kind:
        records = sorted(
            (record for record in TABLE.values() if record.kind is kind),
            key=lambda record: record.name,
        )
        if records:
            rows = [[_call(r), _cell(r.doc), _gradient(r), _generated(r)] for r in records]
            parts += [f"## {kind.value.capitalize()}", _table(["", "", "gradient", "C"], rows)]
    return "\n\n".join(parts) + "\n"


# Names of the same thing elsewhere: PyTorch's, then Keras'; "-" where there is none.
ELSEWHERE = {
    "Activation": "ReLU, GELU, ...; Activation", "AdaptiveAvgPool": "AdaptiveAvgPool2d; -",
    "AdaptiveMaxPool": "AdaptiveMaxPool2d; -", "Add": "-; Add", "AvgPool1D": "AvgPool1d; "
    "AveragePooling1D", "AvgPool2D": "AvgPool2d; AveragePooling2D", "AvgPool3D": "AvgPool3d; "
    "AveragePooling3D", "BatchNorm": "BatchNorm2d; BatchNormalization", "Bidirectional": "-; "
    "Bidirectional", "Concatenate": "-; Concatenate", "Conv1D": "Conv1d; Conv1D",
    "Conv1DTranspose": "ConvTranspose1d; Conv1DTranspose", "Conv2D": "Conv2d; Conv2D",
    "Conv2DTranspose": "ConvTranspose2d; Conv2DTranspose", "Conv3D": "Conv3d; Conv3D",
    "Conv3DTranspose": "ConvTranspose3d; Conv3DTranspose", "Dense": "Linear; Dense",
    "DepthwiseConv1D": "Conv1d(groups=); DepthwiseConv1D", "DepthwiseConv2D": "Conv2d(groups=); "
    "DepthwiseConv2D", "Dropout": "Dropout; Dropout", "Embedding": "Embedding; Embedding",
    "Flatten": "Flatten; Flatten", "GLU": "GLU; -", "GRU": "GRU; GRU", "GlobalAvgPool2D":
    "AdaptiveAvgPool2d(1); GlobalAveragePooling2D", "GlobalMaxPool2D": "AdaptiveMaxPool2d(1); "
    "GlobalMaxPooling2D", "GroupNorm": "GroupNorm; GroupNormalization", "Input": "-; Input",
    "InstanceNorm": "InstanceNorm2d; -", "LSTM": "LSTM; LSTM", "Layer": "Module; Layer",
    "LayerNorm": "LayerNorm; LayerNormalization", "MaxPool1D": "MaxPool1d; MaxPooling1D",
    "MaxPool2D": "MaxPool2d; MaxPooling2D", "MaxPool3D": "MaxPool3d; MaxPooling3D",
    "MultiHeadAttention": "MultiheadAttention; MultiHeadAttention", "PixelShuffle":
    "PixelShuffle; -", "RMSNorm": "RMSNorm; RMSNormalization", "RNN": "RNN; SimpleRNN",
    "Reshape": "Unflatten; Reshape", "SeparableConv1D": "-; SeparableConv1D", "SeparableConv2D":
    "-; SeparableConv2D", "Sequential": "Sequential; Sequential", "SpatialDropout":
    "Dropout2d; SpatialDropout2D", "SpectralNorm": "spectral_norm; SpectralNormalization",
    "TransformerDecoder": "TransformerDecoderLayer; -", "TransformerEncoder":
    "TransformerEncoderLayer; -", "Upsample": "Upsample; UpSampling2D", "WeightNorm":
    "weight_norm; -", "AdaGrad": "Adagrad; Adagrad", "Adafactor": "Adafactor; Adafactor",
    "Adam": "Adam; Adam", "AdamW": "AdamW; AdamW", "EMA": "AveragedModel; use_ema=True",
    "GradientDescent": "SGD; SGD", "LAMB": "-; Lamb", "LBFGS": "LBFGS; -", "Lion": "-; Lion",
    "Muon": "Muon; Muon", "NAdam": "NAdam; Nadam", "RAdam": "RAdam; -", "RMSProp": "RMSprop; "
    "RMSprop", "SWA": "AveragedModel; -", "cosine": "CosineAnnealingLR; CosineDecay",
    "cosine_restarts": "CosineAnnealingWarmRestarts; CosineDecayRestarts", "exponential":
    "ExponentialLR; ExponentialDecay", "one_cycle": "OneCycleLR; -", "plateau":
    "ReduceLROnPlateau; ReduceLROnPlateau", "polynomial": "PolynomialLR; PolynomialDecay",
    "step": "StepLR; -", "AUC": "-; AUC", "Accuracy": "-; SparseCategoricalAccuracy",
    "F1": "-; F1Score", "MAE": "-; MeanAbsoluteError", "MSE": "-; MeanSquaredError",
    "Precision": "-; Precision", "R2": "-; R2Score", "Recall": "-; Recall", "TopK": "-; "
    "TopKCategoricalAccuracy",
}  # fmt: skip


def networks() -> str:
    """Return the page of layers, optimizers, schedules and metrics."""
    parts = [
        "# Layers, optimizers, metrics",
        NOTE,
        "Each name has its shapes, formula and source in its docstring. The last columns are the "
        "names of PyTorch and Keras for the same thing, whose arguments may have other names.",
    ]
    for title, module in (
        ("Layers", magmagraph.nn),
        ("Networks known by name", magmagraph.nn.prebuilt),
        ("Optimizers", magmagraph.optimizer),
        ("Schedules", magmagraph.schedule),
        ("Metrics", magmagraph.metrics),
    ):
        place = module.__name__.removeprefix("magmagraph.")
        rows = []
        for name in sorted(module.__all__, key=str.lower):
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                continue
            summary = (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")
            others = [part.strip() for part in ELSEWHERE.get(name, "-; -").split(";")]
            cells = ["" if part == "-" else f"`{part}`" for part in others]
            rows.append([f"`mg.{place}.{name}`", _cell(summary), *cells])
        parts += [f"## {title}", _table(["", "", "PyTorch", "Keras"], rows)]
    return "\n\n".join(parts) + "\n"


def onnx_forms() -> str:
    """Return the page of what `mg.to_onnx` writes for each operation, and what it refuses."""
    records = sorted(
        (r for r in TABLE.values() if isinstance(r, Op) and r.kind is not Kind.LEAF),
        key=lambda record: record.name,
    )
    with_form = [record for record in records if record.onnx]
    without = [record for record in records if not record.onnx]
    parts = [
        "# ONNX",
        NOTE,
        *_onnx_import(),
        "## Export",
        f"`mg.to_onnx` writes {len(with_form)} of {len(records)} operations, and functions made of "
        "these. An operator's name is that of the same meaning; *rule* marks operations "
        "that are written as several operators, or as one with attributes; *complex* those that "
        "take complex numbers too, as pairs of real ones along a last axis. Operands of a dtype "
        "that an operator does not take are cast to a wider one, and results are cast back.",
        "A test exports each operation in each dtype, checks the model, and compares what "
        "onnxruntime computes. Where the standard has a dtype and onnxruntime has no kernel, "
        "mostly for float64 and uint64, the model is valid and onnxruntime refuses it.",
        "### Operations with a form",
        _table(["", "", "ONNX"], [[_call(r), _cell(r.doc), _form(r)] for r in with_form]),
        "### Operations without a form",
        "A program that holds one is refused; the error names them.",
        _table(
            ["", "", "reason"], [[_call(r), _cell(r.doc), _cell(reason_of(r))] for r in without]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _onnx_import() -> list[str]:
    """Return the parts of the page on what `mg.from_onnx` reads."""
    sys.path.insert(0, str(HERE.parent / "tests" / "helpers"))
    import onnx_left_out as left

    rows = [
        [family, ", ".join(f"`{name}`" for name in sorted(rules))]
        for family, rules in FAMILIES.items()
    ]
    count = sum(map(len, FAMILIES.values()))
    return [
        "## Import",
        "`mg.from_onnx(path)` gives a compiled function, and with `as_network=True` a network that "
        f"trains. The table has {count} operators. Operators that ONNX defines by others "
        "(`Attention`, `RotaryEmbedding`, `SoftmaxCrossEntropyLoss`, ...) and functions in the "
        "model are replaced by their definitions. Opsets 13 to 28, older ones through onnx's "
        "converter; symbolic sizes are named "
        "dimensions. Element types below 8 bits are carried in int8 and uint8, floats below 16 "
        "bits in float32.",
        "```py\n"
        "f = mg.from_onnx(\"model.onnx\")                # f(array), f(name=array): a list\n"
        "f.variables[\"fc.weight\"].value              # the initializers\n"
        "net = mg.from_onnx(\"model.onnx\", as_network=True, loss=\"cross_entropy\")\n"
        "net.fit(x, y)\n"
        "```",
        "An input whose value decides a shape is given when the model is read: "
        "`mg.from_onnx(path, values={\"shape\": [2, 3]})`; the error names such inputs.",
        _table(["", "operators"], rows),
        "### ONNX's own tests",
        f"Of the {left.TESTS} node tests of onnx {left.VERSION}, {left.PASSED} pass "
        f"({100 * left.PASSED / left.TESTS:.1f} %), {left.WITH_VALUES} of them with inputs that "
        "decide shapes given as `values=`. 16-bit results are compared to two units of the last "
        "place, all others to ONNX's tolerance. The rest:",
        _table(["tests", "reason"], [[f"`{_cell(p)}`", r] for p, r in left.LEFT_OUT]),
    ]


def _form(record: Op) -> str:
    """Return the operator of a record's form."""
    form, also = record.onnx, ""
    if isinstance(form, Pairs):
        form, also = form.real, ", complex" if form.real else "complex"
    text = f"`{form}`" if isinstance(form, str) and form else "rule" if form else ""
    return text + also


def pipeline() -> str:
    """Return the page of the passes, in their order."""
    parts = [
        "# Passes",
        NOTE,
        "The pipeline of `mg.function`, from the frozen graph to the plan. Optional passes can be "
        'left out by name: `mg.function(..., skip=("fuse",))`. What a pass may do to values: '
        "*exact* leaves every bit, *stable* is at least as accurate, *reassoc* sums in another "
        "order, *half* computes in fewer bits where that was asked for.",
        _table(
            ["", "pass", "", "values", "why it stands there"],
            [
                (
                    number,
                    f"[{record.name}](#{record.name})",
                    "optional" if record.optional else "",
                    record.numerics,
                    _cell(record.reason),
                )
                for number, record in enumerate(passes.default(), 1)
            ],
        ),
    ]
    for record in passes.default():
        # The records import a pass when it first runs; its file says what it does.
        module = importlib.import_module(record.function.__module__)
        parts += [f"## {record.name}", _prose(inspect.getdoc(module) or "")]
    return "\n\n".join(parts) + "\n"


def with_output(path: Path) -> str:
    """Return a page with what its blocks of Python print in the blocks of text after them.

    The blocks run one after the other, in one namespace. A block of ``text measured`` holds times
    or rounding errors: it is left as it stands where only such numbers differ.
    """
    from magmagraph.runtime.cpu.threads import set_threads

    text = path.read_text(encoding="utf-8")
    set_threads(1)  # workspaces are planned for the threads of the machine
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            # Pages show line numbers of their own, which move when shown output grows.
            for _ in range(4):
                before, text = text, _renewed(path, text)
                if text == before:
                    break
    finally:
        set_threads(None)
    return text


def _renewed(path: Path, text: str) -> str:
    space: dict[str, Any] = {"__name__": "__main__"}
    printed: list[str] = []  # by the block of Python before, until it is shown

    def renew(match: re.Match[str]) -> str:
        kind, body = match.groups()
        if kind == "python":
            line = text.count("\n", 0, match.start(2))
            with contextlib.redirect_stdout(io.StringIO()) as out:
                # Empty lines in front, so that messages show lines of the page.
                exec(compile("\n" * line + body, path.name, "exec"), space)
            printed[:] = [out.getvalue()]
            return match[0]
        if not printed:
            return match[0]
        new = printed.pop()
        same = kind == "text measured" and unmeasured(body) == unmeasured(new)
        return match[0] if same else f"```{kind}\n{new}```"

    return re.sub(r"^```(python|text(?: measured)?)\n(.*?)^```$", renew, text, flags=re.M | re.S)


def unmeasured(text: str) -> str:
    """Return text without what differs from run to run and from machine to machine.

    These are numbers with a point, an exponent or a percent sign; the result that has the largest
    error; and the widths of columns.
    """
    text = re.sub(r"(?:variable '\w+'|output \d+)$", "", text, flags=re.M)
    text = re.sub(r"\d+(?:\.\d+(?:e[-+]\d+)?|%)", "#", text)
    return re.sub(r" +$", "", re.sub(r" +", " ", text), flags=re.M)


def _prose(docstring: str) -> str:
    """Return a docstring as Markdown: its indented blocks, which are graphs, stand as they are."""
    lines: list[str] = []
    fenced = False
    for line in docstring.splitlines():
        if line and line.startswith("    ") != fenced:
            while lines and not lines[-1]:
                lines.pop()
            lines += ["```", ""] if fenced else ["", "```text"]
            fenced = not fenced
        if fenced:
            lines.append(line.removeprefix("    "))
        else:
            lines.append(re.sub(r":(class|func|mod):`", "`", line.replace("``", "`")))
            lines[-1] = lines[-1].removesuffix("::") + ":" * line.endswith("::")
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join([*lines, "```"] if fenced else lines)


def _call(record: Op | Composite) -> str:
    """Return a record's name as a user writes it."""
    if record.function is None:
        return f"`{record.name}`"
    home = f"mg.{record.namespace}." if record.namespace else "mg."
    # Random numbers are no table's: their records are named as they are called.
    name = record.name if record.kind is Kind.RANDOM else record.function.__name__
    return f"`{home}{name}`"


def _gradient(record: Op | Composite) -> str:
    """Say whether an operation has a gradient, or why it has none."""
    if record.no_gradient:
        return _cell(record.no_gradient)
    return "yes" if isinstance(record, Composite) or record.gradient is not None else "—"


def _generated(record: Op | Composite) -> str:
    """Mark what has an expression for generated kernels."""
    if isinstance(record, Composite):
        return "by its parts"
    return "yes" if record.scalar.expression is not None or record.reduction is not None else ""


def _cell(text: str) -> str:
    """Return text that cannot end a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(HERE.parent)}: {len(text.splitlines())} lines")
