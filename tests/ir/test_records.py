"""Records: frozen dataclasses that share what need not be written for each."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

import pytest

from magmagraph.ir.records import record


@record(frozen=True)
class Point:
    """A place, and what is told of it."""

    x: int
    y: tuple[int, ...]
    label: str = "none"


@record(frozen=True, eq=False)
class Apart:
    """Equal to itself alone."""

    x: Any
    other: Any = None


@dataclass(frozen=True)
class Plain:
    """What a record is compared with."""

    x: int
    y: tuple[int, ...]
    label: str = "none"


def test_it_is_made_and_told_as_a_dataclass_is() -> None:
    for point in (Point(1, (2,)), Point(x=1, y=(2,)), Point(1, y=(2,), label="none")):
        assert (point.x, point.y, point.label) == (1, (2,), "none")
        assert repr(point) == repr(Plain(1, (2,))).replace("Plain", "Point")
    assert [f.name for f in fields(Point)] == [f.name for f in fields(Plain)]
    assert Point.__match_args__ == Plain.__match_args__
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        Point(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, (2,), z=3)  # type: ignore[call-arg]


def test_equal_fields_make_equal_records_unless_each_is_its_own() -> None:
    assert Point(1, (2,)) == Point(1, (2,))
    assert Point(1, (2,)) != Point(1, (3,))
    assert {Point(1, (2,)), Point(1, (2,))} == {Point(1, (2,))}
    assert Point(1, (2,)) != Plain(1, (2,))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1, [2]))  # type: ignore[arg-type]
    assert Apart(1) != Apart(1)
    assert hash(Apart([1])) != hash(Apart([1]))


def test_nothing_of_it_changes() -> None:
    point = Point(1, (2,))
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x  # type: ignore[misc]
    assert replace(point, x=5) == Point(5, (2,))
    assert point == Point(1, (2,))


def test_it_is_copied_and_pickled() -> None:
    point = Point(1, (2,), "here")
    assert pickle.loads(pickle.dumps(point)) == point
    assert copy.deepcopy(point) == copy.copy(point) == point


def test_one_that_holds_itself_can_be_shown() -> None:
    members: list[Any] = []
    apart = Apart(1, members)
    members.append(apart)
    assert repr(apart) == "Apart(x=1, other=[...])"


@record(frozen=True, kw_only=True)
class Named:
    """What it is made of is named where it is made."""

    notes: list[str] = dataclasses.field(default_factory=list)
    seen: int = dataclasses.field(default=0, compare=False, repr=False)
    size: int


@dataclass(frozen=True, kw_only=True)
class PlainNamed:
    """What that is compared with."""

    notes: list[str] = dataclasses.field(default_factory=list)
    seen: int = dataclasses.field(default=0, compare=False, repr=False)
    size: int


def test_fields_are_named_made_anew_and_left_out_as_in_a_dataclass() -> None:
    record = Named(size=3)
    assert repr(record) == repr(PlainNamed(size=3)).replace("Plain", "")
    assert (record.notes, record.seen, record.size) == ([], 0, 3)
    record.notes.append("only here")
    assert Named(size=3).notes == []
    assert Named(size=3, seen=1) == Named(size=3, seen=2) != Named(size=4)
    assert replace(record, seen=5) == record
    with pytest.raises(TypeError, match=r"Named\.__init__\(\) takes 1 positional argument"):
        Named(3)  # type: ignore[misc]
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'size'"):
        Named()  # type: ignore[call-arg]
    assert Named.__match_args__ == PlainNamed.__match_args__ == ()


@pytest.mark.parametrize(("ours", "plain"), [(Point, Plain), (Named, PlainNamed)])
def test_help_shows_what_it_shows_of_a_dataclass(ours: type, plain: type) -> None:
    assert str(inspect.signature(ours)) == str(inspect.signature(plain))
    assert get_type_hints(ours.__init__) == get_type_hints(plain.__init__)


def test_a_record_may_extend_another() -> None:
    @record(frozen=True)
    class Far(Point):
        """A place, and how far it is."""

        distance: float = 1.0

    assert repr(Far(1, (2,))).endswith("Far(x=1, y=(2,), label='none', distance=1.0)")
    assert Far(1, (2,), distance=2.0) == Far(1, (2,), "none", 2.0) != Far(1, (2,))


def test_a_field_that_is_not_given_is_refused() -> None:
    class Wrong:
        """It has one."""

        x: list[int] = dataclasses.field(init=False)

    with pytest.raises(TypeError, match=r"Wrong\.x is a field for a dataclass"):
        record(frozen=True)(Wrong)
