"""Explain failed calls of public functions: wrong keywords, and arguments of a wrong type.

A public function is called through a wrapper that catches the built-in errors. Where Python could
not bind the arguments, `keywords` says what the function takes and which argument was meant. Where
the function itself failed, `argument_types` compares each argument with the type that its parameter
declares, and the first that does not fit becomes an `ArgumentError`; the error from inside is its
cause. An error that no argument explains is passed on. Modules of this package call each other
without the wrapper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

from ..errors import MagmagraphError
from .public_names import PACKAGE, name_class, short_name

__all__ = ["tell", "tell_classes", "tell_methods", "told"]

Check = Callable[[tuple[Any, ...], Mapping[str, Any]], None]

_told: dict[Callable[..., Any], Callable[..., Any]] = {}  # each once, whatever it is called


# What Python and NumPy raise where a value is not of the type that a function computes with.
_BUILTIN = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError,
            MemoryError)  # fmt: skip


def _is_binding(error: BaseException, function: Callable[..., Any]) -> bool:
    """Tell whether a call failed before the first line of the function."""
    if type(error) is not TypeError:
        return False
    trace = error.__traceback__
    if hasattr(function, "__group__") and trace is not None:
        trace = trace.tb_next  # of ir.lines.grouped, which takes any arguments
    if trace is None or trace.tb_next is None:
        return True
    # A function that is made from a table binds its arguments itself.
    return hasattr(function, "__signature__")


def told(
    function: Callable[..., Any],
    module: str,
    name: str,
    check: Check | None = None,
) -> Callable[..., Any]:
    """Return a function that explains where its arguments do not fit, and else is as given.

    function: As it is written.
    module, name: Where users find it.
    check: Called with the arguments before the function, to refuse some.
    """
    known = _told.get(function)
    if known is not None:
        return known

    def call(*args: Any, **named: Any) -> Any:
        if check is not None:
            check(args, named)
        try:
            return function(*args, **named)
        except _BUILTIN as error:
            if isinstance(error, MagmagraphError):
                raise
            # Here, as most programs never need it: it imports `inspect` and `difflib`.
            from .keywords import misfit

            who, failure, cause = f"{module}.{name}", None, None
            if _is_binding(error, function):
                failure = misfit(who, function, args, named)
            if failure is None:
                from .argument_types import misfit_of_types

                failure = misfit_of_types(short_name(who), function, args, named, error)
                cause = error
            if failure is None:
                raise
        raise failure from cause

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
        except _BUILTIN as error:
            if isinstance(error, MagmagraphError):
                raise
            # Here for the reason above.
            from .keywords import misfit_of_class, misfit_of_method, name_of_method

            cls, failure, cause = type(self), None, None
            if _is_binding(error, method):
                if starts:
                    failure = misfit_of_class(cls, args, named)
                else:
                    failure = misfit_of_method(cls, method, args, named)
            if failure is None:
                from .argument_types import misfit_of_types

                who = name_of_method(cls, method)
                failure = misfit_of_types(who, method, args, named, error, skip_first=True)
                cause = error
            if failure is None:
                raise
        raise failure from cause

    call.__name__, call.__qualname__ = method.__name__, method.__qualname__
    call.__module__, call.__doc__ = method.__module__, method.__doc__
    call.__wrapped__ = method  # type: ignore[attr-defined]
    return call


def tell(
    namespace: dict[str, Any],
    names: Iterable[str],
    check_of: Callable[[Callable[..., Any]], Check | None] | None = None,
) -> None:
    """Wrap the public functions of a module, and give its public classes their full names.

    namespace: The ``globals()`` of the module.
    names: Of what is public there.
    check_of: Gives the check of a function, see `told`.
    """
    module = namespace["__name__"]
    for name in names:
        value = namespace.get(name)
        wrapped = hasattr(value, "__wrapped__") and not hasattr(value, "__group__")
        if isinstance(value, FunctionType) and not wrapped:
            first = value.__name__
            own = first if namespace.get(first) is value else name
            check = None if check_of is None else check_of(value)
            namespace[name] = told(value, module, own, check)
        elif isinstance(value, type) and value.__name__ == name:  # not under a second name
            name_class(value, module)


def tell_classes(namespace: dict[str, Any], names: Iterable[str], *methods: str) -> None:
    """Wrap the public classes of a module: where instances are made, and their public methods.

    namespace, names: As of `tell`.
    methods: Names of further methods, such as ``"__call__"``.
    """
    for name in names:
        value = namespace.get(name)
        if isinstance(value, type) and not issubclass(value, (tuple, BaseException)):
            tell_methods(value, ("__init__", *methods))
            for base in value.__mro__:
                if base.__module__.partition(".")[0] == PACKAGE:
                    tell_methods(base, [each for each in vars(base) if not each.startswith("_")])


def tell_methods(cls: type, names: Iterable[str]) -> None:
    """Wrap methods, of those that a class defines itself."""
    for name in names:
        method = cls.__dict__.get(name)
        if type(method) is FunctionType and not hasattr(method, "__wrapped__"):
            setattr(cls, name, _told_of_class(method, name == "__init__"))
