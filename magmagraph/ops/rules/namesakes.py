"""Records of functions that are made of others and that NumPy has by the same name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.op import BadSample, Composite, Kind, Sample, Tests


def namesake(
    kind: Kind,
    function: Callable[..., Any],
    doc: str,
    samples: Sequence[Sample],
    bad: Sequence[tuple[Any, ...]] = (),
    *,
    reference: Callable[..., Any] | None = None,
    numerics: str = "exact",
    **fields: Any,
) -> Composite:
    """Return the record of a function whose reference is NumPy's function of its name.

    kind, function, doc, samples: Fields of the record.
    bad: The arguments of each `BadSample`.
    reference: In the place of NumPy's function.
    numerics, **fields: Further fields of the record.
    """
    name = function.__name__
    return Composite(
        name=name,
        kind=kind,
        function=function,
        doc=doc,
        numerics=numerics,
        tests=Tests(
            samples=lambda: samples,
            bad_samples=(lambda: [BadSample(*each) for each in bad]) if bad else None,
            reference=reference or getattr(np, name),
        ),
        **fields,
    )
