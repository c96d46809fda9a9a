"""Frozen records: what `dataclass(frozen=True, slots=True)` makes, without compiling it.

A dataclass writes and compiles its methods at import, a good part of a millisecond for each class;
those here are closures. What asks for the fields, as `dataclasses.replace` does, is answered too.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    import inspect

T = TypeVar("T")


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


#: In the place of a default where there is none.
MISSING: Any = _Missing()


class Field:
    """One field of a record; a subclass may hold what its owner wants to know of it.

    Attributes:
        name: the attribute.
        annotation: its type, as text.
        default: its value where none is given; `MISSING` where there is none.
        default_factory: makes that value, or None.
        compare: whether it counts for equality, order and hash.
        repr: whether it is shown.
    """

    def __init__(
        self,
        default: Any = MISSING,
        default_factory: Callable[[], Any] | None = None,
        *,
        compare: bool = True,
        repr: bool = True,
    ) -> None:
        self.name = self.annotation = ""
        self.default, self.default_factory = default, default_factory
        self.compare, self.repr = compare, repr


def field(
    *,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | None = None,
    compare: bool = True,
    repr: bool = True,
) -> Any:
    """Says more of a field than its default, as `dataclasses.field` does."""
    return Field(default, default_factory, compare=compare, repr=repr)


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(
    *, order: bool = False, kw_only: bool = False, slots: bool = True
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    cls: type[T] | None = None, /, *, order: bool = False, kw_only: bool = False, slots: bool = True
) -> type[T] | Callable[[type[T]], type[T]]:
    """Makes a class of annotated names a record: immutable, compared and hashed by its values.

    The fields of a record that it is derived from come before its own.
    `__post_init__`, pattern matching, pickle, `inspect.signature` and the functions of
    `dataclasses` work as for a frozen dataclass. A method that the class has stays.

    Args:
        cls: the class; with `slots` its records are of a new one of its name.
        order: whether records have an order, that of their values.
        kw_only: whether values are given by name only.
        slots: False where a cached property needs a place.
    """

    def made(cls: type[T]) -> type[T]:
        new = tuple(_field(cls, name) for name in cls.__annotations__)
        inherited = {each.name: each for each in getattr(cls, "__frozen_fields__", ())}
        own = tuple((inherited | {each.name: each for each in new}).values())
        added = _methods(cls, own, kw_only) | (_order(own) if order else {})
        added = {name: value for name, value in added.items() if name not in cls.__dict__}
        if not slots:
            for name, value in added.items():
                setattr(cls, name, value)
            return cls
        names = tuple(each.name for each in new if each.name not in inherited)
        left_out = {*(each.name for each in new), "__dict__", "__weakref__"}
        namespace = {name: cls.__dict__[name] for name in cls.__dict__ if name not in left_out}
        namespace |= {**added, "__slots__": names, "__qualname__": cls.__qualname__}
        again: type[T] = type(cls)(cls.__name__, cls.__bases__, namespace)  # type: ignore[misc]
        hand_over(cls, again)
        return again

    return made if cls is None else made(cls)


def hand_over(cls: type, again: type) -> None:
    """Gives the functions of a class to the one that was made of it.

    A `class` statement tells them their class in a cell, which all of them share. `super()` and
    `__class__` read it.
    """
    held, seen = list(cls.__dict__.values()), set[int]()
    for each in held:  # which grows by what others wrap
        if isinstance(each, property):
            held += each.fget, each.fset, each.fdel
        elif isinstance(each, (classmethod, staticmethod)):
            held.append(each.__func__)
        elif isinstance(each, (functools.partialmethod, functools.singledispatchmethod)):
            held.append(each.func)
        elif isinstance(each, FunctionType) and id(each) not in seen:
            seen.add(id(each))
            for name, cell in zip(each.__code__.co_freevars, each.__closure__ or (), strict=True):
                with contextlib.suppress(ValueError):  # a cell may be empty
                    if name == "__class__" and cell.cell_contents is cls:
                        cell.cell_contents = again
                        return
                    held.append(cell.cell_contents)


def fields(record: object) -> tuple[Field, ...]:
    """Gives the fields of a record, or of a class of records."""
    found: tuple[Field, ...] = record.__frozen_fields__  # type: ignore[attr-defined]
    return found


def values(record: object) -> dict[str, Any]:
    """Gives what a record holds, by name."""
    return {each.name: getattr(record, each.name) for each in fields(record)}


def replace(record: T, /, **changes: Any) -> T:
    """Gives a record with some other values; `__post_init__` looks at all of them again."""
    return type(record)(**(values(record) | changes))


def _field(cls: type, name: str) -> Field:
    given = cls.__dict__.get(name, MISSING)
    found = given if isinstance(given, Field) else Field(given)
    found.name, found.annotation = name, cls.__annotations__[name]
    return found


def _methods(cls: type, own: Sequence[Field], kw_only: bool) -> dict[str, Any]:
    names = tuple(each.name for each in own)
    shown = tuple(each.name for each in own if each.repr)
    compared = _compared(own)
    complete = _completion(cls, own, kw_only)
    checks = hasattr(cls, "__post_init__")
    put = object.__setattr__

    def set_all(self: Any, /, *args: Any, **given: Any) -> None:
        whole = not given and not kw_only and len(args) == len(names)
        for name, value in zip(names, args if whole else complete(args, given), strict=True):
            put(self, name, value)
        if checks:
            self.__post_init__()

    def show(self: Any) -> str:
        text = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({text})"

    def equal(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def digest(self: Any) -> int:
        return hash(compared(self))

    def state(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def restore(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            put(self, name, value)

    return {
        "__frozen_fields__": tuple(own),
        "__dataclass_fields__": _DataclassFields(kw_only),
        "__signature__": _Signature(kw_only),
        "__match_args__": () if kw_only else names,
        "__init__": set_all,
        "__repr__": show,
        "__eq__": equal,
        "__hash__": digest,
        "__getstate__": state,
        "__setstate__": restore,
        "__setattr__": _setattr,
        "__delattr__": _delattr,
        "__replace__": replace,
    }


def _completion(
    cls: type, own: Sequence[Field], kw_only: bool
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Sequence[Any]]:
    """Puts what was given by name, and the defaults, in the places of the fields."""
    names = tuple(each.name for each in own)
    most = 0 if kw_only else len(names)
    defaults = {each.name: each.default for each in own if each.default is not MISSING}
    factories = {each.name: make for each in own if (make := each.default_factory) is not None}

    def complete(args: tuple[Any, ...], given: Mapping[str, Any]) -> list[Any]:
        found = {**defaults, **dict(zip(names, args, strict=False)), **given}
        for name, make in factories.items():
            if name not in found:
                found[name] = make()
        fits = len(args) <= most and len(found) == len(names)
        if not fits or not given.keys().isdisjoint(names[: len(args)]):
            _refuse(cls, own, kw_only, args, given)
        try:
            return [found[name] for name in names]
        except KeyError:  # as many names, and others among them
            _refuse(cls, own, kw_only, args, given)

    return complete


def _refuse(
    cls: type, own: Sequence[Field], kw_only: bool, args: Sequence[Any], given: Mapping[str, Any]
) -> NoReturn:
    try:
        _signature(own, kw_only).bind(*args, **given)
    except TypeError as exc:
        raise TypeError(f"{cls.__qualname__}: {exc}") from None
    raise AssertionError("these arguments fit")


def _compared(own: Sequence[Field]) -> Callable[[object], Any]:
    names = [each.name for each in own if each.compare]
    return operator.attrgetter(*names) if names else lambda _: ()


def _order(own: Sequence[Field]) -> dict[str, Any]:
    compared = _compared(own)

    def comparison(name: str) -> Callable[[Any, Any], Any]:
        compare = getattr(operator, name)

        def method(self: Any, other: Any) -> Any:
            if other.__class__ is not self.__class__:
                return NotImplemented
            return compare(compared(self), compared(other))

        return method

    return {f"__{name}__": comparison(name) for name in ("lt", "le", "gt", "ge")}


def _setattr(self: object, name: str, value: object) -> NoReturn:
    del self, value
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: object, name: str) -> NoReturn:
    del self
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


class _DataclassFields:
    """What `dataclasses` looks for on a class, made when it does."""

    def __init__(self, kw_only: bool) -> None:
        self._kw_only = kw_only

    def __get__(self, record: object, cls: type) -> dict[str, Any]:
        import dataclasses

        def twin(each: Field) -> Any:
            said: dict[str, Any] = {"compare": each.compare, "repr": each.repr}
            if each.default_factory is not None:
                said["default_factory"] = each.default_factory
            elif each.default is not MISSING:
                said["default"] = each.default
            return dataclasses.field(**said)

        rows = [(each.name, each.annotation, twin(each)) for each in fields(cls)]
        twins = dataclasses.make_dataclass(cls.__name__, rows, kw_only=self._kw_only)
        return {each.name: each for each in dataclasses.fields(twins)}


class _Signature:
    """What `inspect.signature` looks for on a class, made when it does."""

    def __init__(self, kw_only: bool) -> None:
        self._kw_only = kw_only

    def __get__(self, record: object, cls: type) -> inspect.Signature:
        return _signature(fields(cls), self._kw_only)


def _signature(own: Sequence[Field], kw_only: bool) -> inspect.Signature:
    import inspect

    kind = inspect.Parameter.KEYWORD_ONLY if kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD

    def default(each: Field) -> Any:
        if each.default_factory is not None:
            return each.default_factory()
        return inspect.Parameter.empty if each.default is MISSING else each.default

    return inspect.Signature(
        [
            inspect.Parameter(each.name, kind, default=default(each), annotation=each.annotation)
            for each in own
        ],
        return_annotation=None,
    )
