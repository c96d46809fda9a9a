"""Frozen records behave as frozen dataclasses with slots do, and import none."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import pickle
import subprocess
import sys
from typing import Any

import pytest

from pjrt_hub.base.frozen import Field, field, fields, frozen, replace, values


@frozen
class Point:
    """A record."""

    x: int
    y: int = 0
    label: str = field(default="", compare=False, repr=False)

    @classmethod
    def origin(cls) -> Point:
        return cls(0)

    def __str__(self) -> str:
        return f"{self.x}/{self.y}"


@dataclasses.dataclass(frozen=True, slots=True)
class DataPoint:
    """The same as a dataclass."""

    x: int
    y: int = 0
    label: str = dataclasses.field(default="", compare=False, repr=False)


@frozen(order=True)
class Version:
    major: int
    minor: int = 0


@frozen(kw_only=True)
class Options:
    names: list[str] = field(default_factory=list)
    level: int = 1

    def __post_init__(self) -> None:
        if self.level < 0:
            raise ValueError(f"level is {self.level}")
        object.__setattr__(self, "names", sorted(self.names))


@frozen(kw_only=True)
class Located(Options):
    """A record made of another."""

    place: str
    level: int = 2


@frozen(slots=False)
class Lazy:
    a: int

    @functools.cached_property
    def doubled(self) -> int:
        return self.a * 2


def test_values_are_given_by_place_and_by_name():
    assert values(Point(1)) == {"x": 1, "y": 0, "label": ""}
    assert values(Point(1, 2, "a")) == {"x": 1, "y": 2, "label": "a"}
    assert values(Point(y=2, x=1)) == {"x": 1, "y": 2, "label": ""}
    assert values(Point(1, label="a")) == {"x": 1, "y": 0, "label": "a"}
    assert Point.origin().x == 0


@pytest.mark.parametrize(
    ("args", "given", "expected"),
    [
        ((), {}, "Point: missing a required argument: 'x'"),
        ((), {"y": 1}, "Point: missing a required argument: 'x'"),
        ((1, 2, "", 4), {}, "Point: too many positional arguments"),
        ((1,), {"x": 1}, "Point: multiple values for argument 'x'"),
        ((1,), {"z": 1}, "Point: got an unexpected keyword argument 'z'"),
        ((), {"y": 1, "label": "", "z": 1}, "Point: missing a required argument: 'x'"),
    ],
)
def test_other_arguments_are_refused(args: tuple[Any, ...], given: dict[str, Any], expected: str):
    with pytest.raises(TypeError) as caught:
        Point(*args, **given)
    assert str(caught.value) == expected
    with pytest.raises(TypeError):
        DataPoint(*args, **given)


def test_records_are_compared_shown_and_hashed_by_their_values():
    assert Point(1, 2, "a") == Point(1, 2, "b")
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != DataPoint(1, 2)
    assert len({Point(1, 2, "a"), Point(1, 2, "b"), Point(2, 1)}) == 2
    assert repr(Point(1, 2, "a")) == "Point(x=1, y=2)"
    assert str(Point(1, 2)) == "1/2"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Options())


def test_a_record_is_derived_from_another():
    found = Located(names=["b", "a"], place="here")
    assert values(found) == {"names": ["a", "b"], "level": 2, "place": "here"}
    assert [each.name for each in fields(Located)] == ["names", "level", "place"]
    assert repr(found) == "Located(names=['a', 'b'], level=2, place='here')"
    assert found != Options(names=["a", "b"], level=2)
    assert replace(found, level=3) == Located(names=["a", "b"], place="here", level=3)
    assert pickle.loads(pickle.dumps(found)) == copy.copy(found) == found
    assert not hasattr(found, "__dict__")
    assert Options().level == 1
    with pytest.raises(ValueError, match="level is -1"):
        Located(place="here", level=-1)
    with pytest.raises(TypeError, match="missing a required argument: 'place'"):
        Located(names=[])
    with pytest.raises(AttributeError):
        found.level = 4  # type: ignore[misc]


def test_the_order_is_that_of_the_values():
    assert Version(0, 9) < Version(0, 10) <= Version(0, 10) < Version(1)
    assert max(Version(1), Version(0, 99)) == Version(1)
    with pytest.raises(TypeError):
        _ = Version(1) < (1, 0)
    with pytest.raises(TypeError):
        _ = Point(1) < Point(2)


def test_nothing_changes_afterwards():
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.other = 2
    assert not hasattr(point, "__dict__")
    assert point == Point(1)


def test_a_check_sees_every_record():
    assert Options(names=["b", "a"]).names == ["a", "b"]
    assert Options().names is not Options().names
    with pytest.raises(ValueError, match="level is -1"):
        Options(level=-1)
    with pytest.raises(ValueError, match="level is -1"):
        replace(Options(), level=-1)
    with pytest.raises(TypeError, match="Options: too many positional arguments"):
        Options(["a"])


def test_a_cached_property_has_a_place():
    lazy = Lazy(2)
    assert (lazy.doubled, lazy.doubled, lazy) == (4, 4, Lazy(2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        lazy.a = 3


@pytest.mark.parametrize("change", [replace, dataclasses.replace])
def test_a_record_is_replaced(change: Any):
    assert values(change(Point(1, 2, "a"), y=3)) == {"x": 1, "y": 3, "label": "a"}
    assert change(Options(level=2), names=["a"]) == Options(names=["a"], level=2)
    assert change(Lazy(1), a=2).doubled == 4
    with pytest.raises(TypeError):
        change(Point(1), z=3)


def test_copies_are_equal():
    for record in (Point(1, 2, "a"), Options(names=["a"]), Version(1)):
        for again in (pickle.loads(pickle.dumps(record)), copy.copy(record), copy.deepcopy(record)):
            assert type(again) is type(record)
            assert values(again) == values(record)


def test_dataclasses_take_it_for_one_of_theirs():
    point = Point(1, 2, "a")
    assert dataclasses.is_dataclass(Point)
    assert dataclasses.asdict(point) == {"x": 1, "y": 2, "label": "a"}
    assert dataclasses.astuple(point) == (1, 2, "a")
    ours, theirs = dataclasses.fields(Point), dataclasses.fields(DataPoint)
    assert [(f.name, f.type, f.default, f.compare, f.repr) for f in ours] == [
        (f.name, f.type, f.default, f.compare, f.repr) for f in theirs
    ]
    assert all(f.kw_only for f in dataclasses.fields(Options))


def test_it_has_the_signature_of_a_dataclass():
    assert inspect.signature(Point) == inspect.signature(DataPoint)
    assert Point.__match_args__ == DataPoint.__match_args__
    assert Point.__qualname__ == "Point"
    assert Point.__module__ == __name__
    assert Point.__doc__ == "A record."
    assert (
        str(inspect.signature(Options)) == "(*, names: 'list[str]' = [], level: 'int' = 1) -> None"
    )
    match Point(3, 4):
        case Point(x, y):
            assert (x, y) == (3, 4)


def logged(method: Any) -> Any:
    """A decorator that leaves no trace of what it holds but its closure."""
    return lambda *args: method(*args)


class Base:
    __slots__ = ()

    def told(self) -> str:
        return "base"

    @classmethod
    def of_class(cls) -> str:
        return "class"


@frozen
class BySuper(Base):
    a: int = 1

    def told(self) -> str:
        return f"{super().told()} {self.a}"


@frozen
class ByProperty(Base):
    @property
    def text(self) -> str:
        return super().told()


@frozen
class BySetter(Base):
    def _set(self, value: list[str]) -> None:
        value.append(super().told())

    text = property(None, _set)
    del _set


@frozen
class ByClassMethod(Base):
    @classmethod
    def of_class(cls) -> str:
        return super().of_class()


@frozen
class ByStaticMethod(Base):
    @staticmethod
    def own() -> Any:
        return __class__  # type: ignore[name-defined]


@frozen
class ByDecorator(Base):
    @logged
    @logged
    def told(self) -> str:
        return super().told()


@frozen
class ByPartial(Base):
    def _told(self, word: str) -> str:
        return super().told() + word

    text = functools.partialmethod(_told, "!")
    del _told


@frozen
class ByInner:
    class Inner(Base):
        def told(self) -> str:
            return super().told()

    def inner(self) -> Any:
        return lambda: __class__  # type: ignore[name-defined]


def test_its_functions_belong_to_the_record():
    """Python tells `super()` the class of the statement; the record is one made of it."""
    texts: list[str] = []
    BySetter.text.fset(BySetter(), texts)
    assert texts == ["base"]
    assert BySuper(2).told() == "base 2"
    assert ByProperty().text == "base"
    assert ByClassMethod.of_class() == "class"
    assert ByStaticMethod.own() is ByStaticMethod
    assert ByDecorator().told() == "base"
    assert ByPartial().text() == "base!"
    assert ByInner.Inner().told() == "base"
    assert ByInner().inner()() is ByInner


def test_a_function_of_another_class_stays_its_own():
    @frozen
    class Borrows(Base):
        a: int = 1
        told = BySuper.told

    assert BySuper(3).told() == "base 3"
    with pytest.raises(TypeError, match="instance or subtype"):
        Borrows().told()


def test_a_field_may_hold_more():
    class Wire(Field):
        def __init__(self, number: int, default: Any) -> None:
            super().__init__(default)
            self.number = number

    @frozen
    class Message:
        size: int = Wire(4, 1)  # type: ignore[assignment]

    assert Message() == Message(1)
    assert [(each.name, each.number) for each in fields(Message)] == [("size", 4)]


def test_making_one_imports_no_dataclasses():
    code = "import sys; from pjrt_hub.base import frozen; print('dataclasses' in sys.modules)"
    code += """
@frozen.frozen
class A:
    a: int
assert frozen.replace(A(1), a=2) == A(2)
print('dataclasses' in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]
