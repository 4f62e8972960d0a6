"""Plans for a GPU that need not be here: every operation passes all passes."""

from __future__ import annotations

from typing import Any

import pytest
from planned import options_of
from table import PUBLIC, dtypes_of, leaves, results, rounded, together

from magmagraph.ir.graph import Trace, freeze
from magmagraph.passes import pipeline


@pytest.mark.parametrize("names", together(list(PUBLIC), 40))
def test_every_operation_has_a_plan(names: list[str]) -> None:
    for name in names:
        record = PUBLIC[name]
        made: list[Any] = []
        feeds: dict[Any, Any] = {}
        assert record.tests.samples is not None
        for i, sample in enumerate(record.tests.samples()):
            nodes, fed = leaves(rounded(sample.inputs, dtypes_of(record)[0]), f"x{i}_")
            feeds |= fed
            assert record.function is not None
            made += results(record.function(*nodes, **sample.attrs))
        options = options_of("cuda:0", threads=264)
        plan, _ = pipeline.run(freeze(list(feeds), made), Trace(), options=options)
        assert len(plan.fetches) == len(made), name
