"""The errors and warnings that magmagraph raises.

Every error is a :class:`MagmagraphError` and, beside that, the built-in exception that a user of
NumPy would expect, so that ``except ValueError`` and ``except magmagraph.MagmagraphError`` both
work. Messages are built by :func:`message` out of the same parts in the same order: what is wrong
(with the values), what was expected, what to try, and where.

Examples
--------
>>> try:
...     raise ShapeError(message("shapes (2, 3) and (4,) do not fit",
...                              need="the last axes equal, or one of them 1"))
... except ValueError as error:
...     print(error)
shapes (2, 3) and (4,) do not fit
  expected: the last axes equal, or one of them 1
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

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
    "DivergedError",
    "ExportError",
    "FallbackWarning",
    "FeedError",
    "GradientError",
    "GraphError",
    "LinAlgError",
    "MagmagraphError",
    "MemoryLimitError",
    "MissingFileError",
    "MissingLibraryError",
    "NonFiniteError",
    "OnnxError",
    "OnnxRuleError",
    "PassError",
    "PathError",
    "PlanError",
    "ReentrantError",
    "ShapeError",
    "ShardingError",
    "StorageError",
    "UpdateError",
    "message",
]


class MagmagraphError(Exception):
    """The base that all errors of this package share.

    Attributes
    ----------
    node
        Where a step of a plan raised it, the node that the step computes, in the optimized graph.
    alone
        Whether ranks that run the same call together do not all have it: nothing that explains it
        may speak to them.
    """

    node: Any = None
    alone: bool = False

    def __new__(cls, *args: Any, **_: Any) -> Self:
        """Make the object by the built-in class whose memory layout it has.

        Without this, ``MissingFileError.__new__(MissingFileError)`` is refused by Python: the first
        built-in base is ValueError, the layout OSError's. Dask unpickles errors by such a call.
        """
        layout: type[BaseException] = cls
        while layout.__module__ != "builtins":
            layout = layout.__base__  # type: ignore[assignment]
        return layout.__new__(cls, *args)


class ShapeError(MagmagraphError, ValueError):
    """Shapes, axes or extents do not fit each other."""


class ShardingError(MagmagraphError, ValueError):
    """A program cannot be spread over ranks as it is written."""


class DTypeError(MagmagraphError, TypeError):
    """An element type is unknown, or is not one that the operation takes."""


class ArgumentError(MagmagraphError, TypeError):
    """A function is given an argument that it does not take, or not one that it needs."""


class FeedError(MagmagraphError, ValueError):
    """A feed is missing, unknown, given twice, or does not fit its input."""


class GradientError(MagmagraphError, ValueError):
    """A gradient does not exist, or was asked for in a way that has no meaning."""


class GraphError(MagmagraphError, ValueError):
    """A graph is malformed, or a node is used where it cannot be."""


class PassError(MagmagraphError, RuntimeError):
    """A pass is unknown, out of place, or has broken a graph."""


class PlanError(MagmagraphError, ValueError):
    """A plan is malformed, truncated, or does not belong to its graph."""


class ExportError(PlanError):
    """A program has a step without a form in the language that it is exported to."""


class MemoryLimitError(MagmagraphError, MemoryError):
    """A call would take more memory than `memory_limit` allows; nothing of it has run."""


class ReentrantError(MagmagraphError, RuntimeError):
    """A signal handler, finalizer or callback uses a function that its own thread is calling."""


class UpdateError(MagmagraphError, ValueError):
    """An update names something that is not a variable, or a variable twice."""


class DeviceError(MagmagraphError, RuntimeError):
    """A device is unknown or cannot be used on this machine."""


class DivergedError(MagmagraphError, ArithmeticError):
    """A minimization reached a loss that is NaN or infinite.

    Parameters
    ----------
    text : str
        The message.
    step : int
        The step, counted from zero, at which the loss stopped being finite. It is kept as
        ``error.step``.
    """

    step: int

    def __init__(self, text: str, step: int = -1) -> None:
        super().__init__(text)
        self.step = step

    def __reduce__(self) -> tuple[type[DivergedError], tuple[str, int]]:
        return type(self), (str(self), self.step)


class NonFiniteError(MagmagraphError, ArithmeticError):
    """A value is NaN or infinite where the function was compiled to refuse that."""


class CheckError(MagmagraphError, AssertionError):
    """What `mg.debug.assert_` says of a value does not hold; no variable was changed."""


class CommunicationError(MagmagraphError, RuntimeError):
    """Ranks of a job do not fit each other, or one of them has failed or does not answer."""


class LinAlgError(MagmagraphError, np.linalg.LinAlgError):
    """A matrix is singular, not positive definite, or an iteration on it does not converge."""


class DataError(MagmagraphError, ValueError):
    """A data file is missing, truncated, or not of the expected form."""


class OnnxError(DataError):
    """An ONNX model is damaged, or holds what has no form here.

    Attributes
    ----------
    operators : tuple of str
        The operators that are not supported.
    inputs : tuple of str
        The inputs whose values would have to be known when the model is read.
    """

    operators: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


class OnnxRuleError(OnnxError):
    """The rule of an ONNX operator failed on what onnx's own checks accept: a mistake of ours."""


class MissingFileError(DataError, FileNotFoundError):
    """There is no such file: what is to be read from it cannot be had."""


class MissingLibraryError(MagmagraphError, ImportError):
    """A library that is used only for this, and so is optional, is not installed."""


class StorageError(MagmagraphError, OSError):
    """A file cannot be written: the disk is full, or refuses; what was there before is whole."""


class ConfigError(MagmagraphError, ValueError):
    """A setting or an environment variable has a value that cannot be used."""


class PathError(ConfigError, StorageError, FileNotFoundError):
    """A file cannot be written at a path: there is no such folder, or the path is no file's."""


class CompilerUnavailable(MagmagraphError, RuntimeError):
    """No C compiler works here, and generated code was asked for by force."""


class CacheWarning(UserWarning):
    """A cache could not be read or written; the work goes on without it."""


class FallbackWarning(UserWarning):
    """A slower path is taken because the preferred one is not usable here."""


class BroadcastWarning(UserWarning):
    """A column and a row of one named dimension make all pairs of elements: a matrix."""


class RanksWarning(UserWarning):
    """Several ranks each train a model of their own: none exchanges anything with the others."""


def message(
    wrong: str, need: str | None = None, hint: str | None = None, where: str | None = None
) -> str:
    """Put the parts of an error message together, a line each.

    wrong (str): What is wrong, with the values that show it. Further lines are kept, indented.
    need (str, optional): What would be accepted.
    hint (str, optional): The change that most likely repairs it: the line "try".
    where (str, optional): The user's own line, or lines, as ``file:line``.
    returns (str): The parts that are given, in this order.

    Examples
    --------
    >>> print(message("axis 3 is out of range for shape (2, 4)", need="-2 <= axis <= 1",
    ...               hint="axis=1 is the last axis", where="model.py:12"))
    axis 3 is out of range for shape (2, 4)
      expected: -2 <= axis <= 1
      try: axis=1 is the last axis
      at: model.py:12
    """
    lines = [_continued(wrong, "  ")]
    for label, part in (("expected", need), ("try", hint), ("at", where)):
        if part is not None:
            lines.append(f"  {label}: {_continued(part, '    ')}")
    return "\n".join(lines)


def _continued(text: str, indent: str) -> str:
    """Indent every line of `text` but the first."""
    return text if "\n" not in text else ("\n" + indent).join(text.split("\n"))
