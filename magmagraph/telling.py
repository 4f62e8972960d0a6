"""What callers are told whose arguments do not fit: each public function says what it takes.

Python's own error knows the wrong keyword and no more. A public function is called through one
that catches this error, and it alone, and asks `keywords` what the function takes, which of its
arguments was meant, and what another library's is called here. Modules of this package call each
other without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

__all__ = ["tell", "tell_classes", "tell_methods", "told"]

Check = Callable[[tuple[Any, ...], Mapping[str, Any]], None]

_told: dict[Callable[..., Any], Callable[..., Any]] = {}  # each once, whatever it is called


def _is_binding(error: TypeError, function: Callable[..., Any]) -> bool:
    """Tell whether a call failed before the first line of the function."""
    trace = error.__traceback__
    if trace is None or trace.tb_next is None:
        return True
    # A function that is made from a table binds its arguments itself.
    return hasattr(function, "__signature__") and type(error) is TypeError


def told(
    function: Callable[..., Any],
    module: str,
    name: str,
    check: Check | None = None,
) -> Callable[..., Any]:
    """Return a function that explains where its arguments do not fit, and else is as given.

    Parameters
    ----------
    function
        As it is written.
    module, name
        Where users find it.
    check
        Called with the arguments before the function, to refuse some.
    """
    known = _told.get(function)
    if known is not None:
        return known

    def call(*args: Any, **named: Any) -> Any:
        if check is not None:
            check(args, named)
        try:
            return function(*args, **named)
        except TypeError as error:
            if not _is_binding(error, function):
                raise
            from .keywords import misfit

            found = misfit(f"{module}.{name}", function, args, named)
            if found is None:
                raise
        raise found

    call.__name__, call.__qualname__, call.__module__ = function.__name__, name, module
    call.__doc__ = function.__doc__
    call.__wrapped__ = function  # type: ignore[attr-defined]
    _told[function] = call
    return call


def _told_of_class(method: Callable[..., Any], starts: bool) -> Callable[..., Any]:
    """Return a method that explains as functions do; the first operand is the instance."""

    def call(self: Any, *args: Any, **named: Any) -> Any:
        try:
            return method(self, *args, **named)
        except TypeError as error:
            if not _is_binding(error, method):
                raise
            from .keywords import misfit_of_class, misfit_of_method

            if starts:
                found = misfit_of_class(type(self), args, named)
            else:
                found = misfit_of_method(type(self), method, args, named)
            if found is None:
                raise
        raise found

    call.__name__, call.__qualname__ = method.__name__, method.__qualname__
    call.__module__, call.__doc__ = method.__module__, method.__doc__
    call.__wrapped__ = method  # type: ignore[attr-defined]
    return call


def tell(
    namespace: dict[str, Any],
    names: Iterable[str],
    check_of: Callable[[Callable[..., Any]], Check | None] | None = None,
) -> None:
    """Have the public functions of a module explain.

    Parameters
    ----------
    namespace
        The ``globals()`` of the module.
    names
        Of what is public there.
    check_of
        Gives the check of a function, see `told`.
    """
    module = namespace["__name__"]
    for name in names:
        value = namespace.get(name)
        if isinstance(value, FunctionType) and not hasattr(value, "__wrapped__"):
            first = value.__name__
            own = first if namespace.get(first) is value else name
            check = None if check_of is None else check_of(value)
            namespace[name] = told(value, module, own, check)


def tell_classes(namespace: dict[str, Any], names: Iterable[str], *methods: str) -> None:
    """Have the public classes of a module explain: where instances are made, and in some methods.

    Parameters
    ----------
    namespace, names
        As of `tell`.
    methods
        Names of methods.
    """
    for name in names:
        value = namespace.get(name)
        if isinstance(value, type) and not issubclass(value, (tuple, BaseException)):
            tell_methods(value, ("__init__", *methods))


def tell_methods(cls: type, names: Iterable[str]) -> None:
    """Have methods explain, of those that a class defines itself."""
    for name in names:
        method = cls.__dict__.get(name)
        if type(method) is FunctionType and not hasattr(method, "__wrapped__"):
            setattr(cls, name, _told_of_class(method, name == "__init__"))
