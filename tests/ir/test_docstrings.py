"""Short docstrings become numpydoc sections: `magmagraph.ir.docstrings`."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import magmagraph as mg
from magmagraph.ir.docstrings import COMMON, documented, numpydoc


def test_all_sections_of_a_function() -> None:
    @documented
    def scaled(x: Any, *rest: Any, low: float = 0.0, high: float = 1.0, keepdims: bool) -> None:
        """Scale values.

        In two paragraphs.

        x: Node or array. A text that is long
            goes on.
        low, high (float, optional): The interval.
        *rest:
            Begins on a line of its own.
        returns: Of the shape of `x`.
        raises ShapeError: If there is none.
        raises DTypeError, GraphError: Otherwise.

        Notes
        -----
        A section of its own.

        >>> mg.zeros(1).eval()
        array([0.], dtype=float32)
        """

    assert inspect.getdoc(scaled) == inspect.cleandoc(
        """Scale values.

        In two paragraphs.

        Parameters
        ----------
        x
            Node or array. A text that is long
            goes on.
        *rest
            Begins on a line of its own.
        low, high : float, optional
            The interval.
        keepdims
            Keep the reduced axes, with extent 1.

        Returns
        -------
        Node
            Of the shape of `x`.

        Raises
        ------
        ShapeError
            If there is none.
        DTypeError, GraphError
            Otherwise.

        Notes
        -----
        A section of its own.

        Examples
        --------
        >>> import magmagraph as mg
        >>> mg.zeros(1).eval()
        array([0.], dtype=float32)
        """
    )


def test_a_class_describes_its_constructor() -> None:
    class Base:
        def __init__(self, rate: float, **options: Any) -> None:
            self.rate = rate

    @documented
    class Derived(Base):
        """Do it.

        rate (float): How fast.
        """

    assert Derived.__doc__ == (
        "Do it.\n\nParameters\n----------\nrate : float\n    How fast.\n"
        f"**options\n    {COMMON['**options']}"
    )


def test_a_written_heading_of_examples_stays() -> None:
    text = "Do it.\n\nx: What.\n\nExamples\n--------\nIn words:\n\n>>> 1\n1"
    assert numpydoc(text, ["x"]).endswith(f"\nx\n    What.{text[16:]}")


def test_prose_with_a_colon_is_no_field() -> None:
    assert numpydoc("Do it.\n\nSource: a book.", []) == "Do it.\n\nSource: a book."


@pytest.mark.parametrize(
    ("text", "parameters", "reason"),
    [
        ("Do it.\n\nx: What.\ny: What.", ["x"], "undescribed or unknown: y, in: Do it."),
        ("Do it.\n\nx: What.", ["x", "y"], "undescribed or unknown: y, in: Do it."),
        ("Do it.\n\nx: What.", ["x", "casting"], "undescribed or unknown: dtype, in: Do it."),
        ("Do it.\n\nx (a: b): What.", ["x"], "a type with a colon: x (a: b): What."),
    ],
)
def test_fields_must_be_the_parameters(text: str, parameters: list[str], reason: str) -> None:
    with pytest.raises(AssertionError) as caught:
        numpydoc(text, parameters)
    assert str(caught.value) == reason


def test_help_is_numpydoc() -> None:
    text = inspect.getdoc(mg.mean) or ""
    for name in inspect.signature(mg.mean).parameters:
        assert f"\n{name}\n    " in text
    assert "\nExamples\n--------\n>>> import magmagraph as mg\n>>> mg.mean(" in text
