"""Records of functions that are made of others and that NumPy has by the same name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...op import BadSample, Composite, Kind, Sample


def namesake(
    kind: Kind,
    function: Callable[..., Any],
    doc: str,
    samples: Sequence[Sample],
    bad: Sequence[tuple[Any, ...]] = (),
    **fields: Any,
) -> Composite:
    """Return the record of a function whose reference is NumPy's function of its name.

    Parameters
    ----------
    kind, function, doc, samples
        Fields of the record.
    bad
        The arguments of each `BadSample`.
    **fields
        Further fields; `numerics` is "exact" unless said, and `reference` NumPy's function.
    """
    name = function.__name__
    if "reference" not in fields:
        fields["reference"] = getattr(np, name)
    fields.setdefault("numerics", "exact")
    if bad:
        fields["bad_samples"] = lambda: [BadSample(*each) for each in bad]
    return Composite(
        name=name,
        kind=kind,
        function=function,
        doc=doc,
        samples=lambda: samples,
        **fields,
    )
