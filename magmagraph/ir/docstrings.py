"""Docstrings of the public API: numpydoc sections from short fields.

A short docstring says each thing once, in a line of its own::

    Average the elements along axes.

    x: Node or array; ints become floats.
    axis: An axis, several, or None for all.
    returns: Without the reduced axes (unless `keepdims`).
    raises ShapeError: If an axis is out of range.

    >>> mg.mean([[1.0, 2.0], [3.0, 6.0]], axis=0).eval()  # doctest: +SKIP
    array([2., 4.], dtype=float32)

`documented` makes of it the numpydoc text that `help` shows: Parameters in the order of the
signature, Returns, Raises, and Examples, which begin with the import of the package. Types are in
parentheses, ``steps (int): Until the rate is reached.``; without one `returns` is a Node. Several
parameters may share a line, ``low, high: The interval.``; lines that go on are indented. `COMMON`
has the text of parameters without a line, here `keepdims`. Sections that have a heading of their
own, such as Notes, follow the fields and stay as they are. What is not public has the same fields,
and stays as it is written.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

__all__ = ["COMMON", "dedented", "documented", "numpydoc"]

COMMON = {
    "**options": "Of every `Layer`.",
    "clip_value, clip_norm, accumulate": "As for `Optimizer`.",
    "dtype, casting": "What the operands are cast to before anything is computed; which casts are\n"
    "    allowed, by NumPy's words: \"no\", \"equiv\", \"safe\", \"same_kind\" or \"unsafe\".",
    "group": "Axes of the mesh along which ranks differ, by name; ``()`` means all ranks.",
    "keepdims": "Keep the reduced axes, with extent 1.",
    "key": "From `mg.random.key`: the same numbers at every call. Without it the node has a\n"
    "    stream of its own, and new numbers at every call of a function.",
    "reduction": '"mean" over all elements, "sum", or "none".',
    "weights": "Factors of the elements' losses, broadcast to them.",
    "where": "Bools that broadcast to the shape of `x`: only elements where they hold count. The\n"
    "    others have gradient 0, whatever their value.",
}
"""Parameters that many functions share -> what the docstring of each says of them."""

_SHARED = {
    name: (names.split(", "), f"\n{names}\n    {text}")
    for names, text in COMMON.items()
    for name in names.split(", ")
}

Documented = TypeVar("Documented")


def documented(thing: Documented) -> Documented:
    """Replace the short docstring of a function or a class by its numpydoc text."""
    described: Any = thing
    if described.__doc__ is not None:  # as under python -OO
        described.__doc__ = numpydoc(described.__doc__, _parameters(described))
    return thing


def _parameters(thing: Any) -> list[str]:
    """Return the names of parameters, with their stars; quicker than `inspect.signature`."""
    if isinstance(thing, type):
        thing = inspect.unwrap(thing.__init__)  # type: ignore[misc]
        if not hasattr(thing, "__code__"):  # that of `object`
            return []
    if signature := vars(thing).get("__signature__"):  # of a function that a family makes
        return list(signature.parameters)
    code = thing.__code__
    names = code.co_varnames
    count = code.co_argcount + code.co_kwonlyargcount
    parameters = list(names[:count])
    if code.co_flags & inspect.CO_VARARGS:
        parameters.insert(code.co_argcount, f"*{names[count]}")
        count += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parameters.append(f"**{names[count]}")
    return parameters[1:] if parameters and parameters[0] in ("self", "cls") else parameters


def dedented(text: str) -> str:
    """Return a text in triple quotes without its indentation, that of the closing quotes."""
    indent = text[text.rfind("\n") + 1 :]
    return (text.replace(f"\n{indent}", "\n") if indent.isspace() else text).strip()


def numpydoc(text: str, parameters: list[str]) -> str:
    """Return the numpydoc text of a short docstring, whose fields must be those parameters.

    This runs for each public function at import, so that it has no regular expressions.
    """
    text = dedented(text)
    rest = example = ""
    if "\nExamples\n---" not in text:
        text, _, example = text.partition("\n\n>>> ")
    if "\n---" in text:  # the line below the first heading
        start = text.rfind("\n\n", 0, text.find("\n---"))
        text, rest = text[:start], text[start:]
    # Fields are the last paragraph, if there are any; an indented one goes on with what is above.
    begin = text.rfind("\n\n")
    while begin > 0 and text[begin + 2] == " ":
        begin = text.rfind("\n\n", 0, begin)
    fields = text[begin + 2 :] if begin > 0 else ""
    owner = fields.partition(":")[0].partition(" (")[0].partition(", ")[0]
    about: dict[str, str] = {}
    returns = raises = ""
    if owner in parameters or owner == "returns" or owner.startswith("raises "):
        text = text[:begin]
        entries: list[str] = []
        for line in fields.split("\n"):
            if line and line[0] != " ":
                entries.append(line)
            else:
                entries[-1] += f"\n{line}"
        for entry in entries:
            title, _, words = entry.partition(":")
            if words[:1] == " ":
                words = f"\n   {words}"
            names, _, types = title.partition(" (")
            if types and types[-1] != ")":
                raise AssertionError(f"a type with a colon: {entry}")
            if names == "returns":
                returns = f"\n\nReturns\n-------\n{types[:-1] or 'Node'}{words}"
            elif title.startswith("raises "):
                raises += f"\n{title[7:]}{words}"
            else:
                words = f"\n{names} : {types[:-1]}{words}" if types else f"\n{names}{words}"
                about.update(dict.fromkeys(names.split(", "), words))
    for name in parameters:
        if name not in about and name in _SHARED:
            about.update(dict.fromkeys(*_SHARED[name]))
    if about.keys() != set(parameters):
        wrong = ", ".join(about.keys() ^ set(parameters))
        raise AssertionError(f"undescribed or unknown: {wrong}, in: {text}")
    if parameters:
        described = "".join(dict.fromkeys([about[name] for name in parameters]))
        text += f"\n\nParameters\n----------{described}"
    if raises:
        raises = f"\n\nRaises\n------{raises}"
    if example:
        example = f"\n\nExamples\n--------\n>>> import magmagraph as mg\n>>> {example}"
    return f"{text}{returns}{raises}{rest}{example}"
