"""Element types: one row for each `PJRT_Buffer_Type` that holds data.

Owns the mapping between the C API, XLA's protobufs and numpy with ml_dtypes; imports both of
these late. Must not look at buffers.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import UnsupportedByPluginError

if TYPE_CHECKING:
    import numpy


class TypeName(str):
    """The name of an element type in programs, which keeps its meaning where a dtype is taken.

    What a user types means there what it does to numpy, for which "i8" has 8 bytes.
    """

    __slots__ = ()


class ElementType(NamedTuple):
    """One element type."""

    name: str  # The name in StableHLO, such as "f32"; a `TypeName`.
    code: int  # The `PJRT_Buffer_Type`.
    primitive: int  # The number in XLA's protobufs, not `code`; -1 where it has none.
    bits: int  # The size of one element on the device; a host array uses at least one byte.
    numpy: str  # The name of the scalar type in numpy, else in ml_dtypes.
    since: int = 0  # The minor version of the PJRT API that introduced it.

    @property
    def xla(self) -> str:
        """XLA's name for the type: "s32", "pred", "c64"."""
        if self.name.startswith("ui"):
            return f"u{self.bits}"
        if self.name.startswith("i") and self.name not in _XLA:
            return f"s{self.bits}"
        return _XLA.get(self.name, self.name.lower())

    @property
    def limits(self) -> tuple[int, int] | None:
        """The least and the greatest value of an integer or boolean type; None for other types."""
        if self.name == "i1":
            return 0, 1
        if not self.numpy.startswith(("int", "uint")):
            return None
        top = 1 << self.bits - self.numpy.startswith("int")
        return (-top if self.numpy.startswith("int") else 0), top - 1


_XLA = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}
_ROWS = (
    ElementType("i1", 1, 1, 8, "bool"),
    ElementType("i8", 2, 2, 8, "int8"),
    ElementType("i16", 3, 3, 16, "int16"),
    ElementType("i32", 4, 4, 32, "int32"),
    ElementType("i64", 5, 5, 64, "int64"),
    ElementType("ui8", 6, 6, 8, "uint8"),
    ElementType("ui16", 7, 7, 16, "uint16"),
    ElementType("ui32", 8, 8, 32, "uint32"),
    ElementType("ui64", 9, 9, 64, "uint64"),
    ElementType("f16", 10, 10, 16, "float16"),
    ElementType("f32", 11, 11, 32, "float32"),
    ElementType("f64", 12, 12, 64, "float64"),
    ElementType("bf16", 13, 16, 16, "bfloat16"),
    ElementType("complex<f32>", 14, 15, 64, "complex64"),
    ElementType("complex<f64>", 15, 18, 128, "complex128"),
    ElementType("f8E5M2", 16, 19, 8, "float8_e5m2"),
    ElementType("f8E4M3FN", 17, 20, 8, "float8_e4m3fn"),
    ElementType("f8E4M3B11FNUZ", 18, 23, 8, "float8_e4m3b11fnuz"),
    ElementType("f8E5M2FNUZ", 19, 24, 8, "float8_e5m2fnuz"),
    ElementType("f8E4M3FNUZ", 20, 25, 8, "float8_e4m3fnuz"),
    ElementType("i4", 21, 21, 4, "int4"),
    ElementType("ui4", 22, 22, 4, "uint4"),
    ElementType("i2", 24, 26, 2, "int2", 54),
    ElementType("ui2", 25, 27, 2, "uint2", 54),
    ElementType("f8E4M3", 26, 28, 8, "float8_e4m3", 55),
    ElementType("f8E3M4", 27, 29, 8, "float8_e3m4", 55),
    ElementType("f8E8M0FNU", 28, 33, 8, "float8_e8m0fnu", 63),
    ElementType("f4E2M1FN", 29, 32, 4, "float4_e2m1fn", 63),
    ElementType("s1", 30, 30, 1, "int1", 94),
    ElementType("u1", 31, 31, 1, "uint1", 94),
    ElementType("f6E2M3FN", 32, -1, 6, "float6_e2m3fn", 114),
    ElementType("f6E3M2FN", 33, -1, 6, "float6_e3m2fn", 114),
)

ELEMENT_TYPES = tuple(each._replace(name=TypeName(each.name)) for each in _ROWS)

_BY_CODE = {element.code: element for element in ELEMENT_TYPES}
_BY_PRIMITIVE = {element.primitive: element for element in ELEMENT_TYPES if element.primitive >= 0}
_BY_NUMPY = {element.numpy: element for element in ELEMENT_TYPES}

_BY_TYPE = {name: element for element in ELEMENT_TYPES for name in (element.name, element.xla)}

#: A cache of earlier requests, which begins with the names that are known without numpy.
_BY_DTYPE: dict[Any, ElementType] = dict(_BY_NUMPY)
#: The ranks of dtypes by kind: values convert implicitly to a higher rank, never to a lower one.
_RANKS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def of_code(code: int) -> ElementType:
    """Return the element type of a `PJRT_Buffer_Type`; TypeError for tokens and unknown types."""
    try:
        return _BY_CODE[code]
    except KeyError:
        raise TypeError(f"buffers of PJRT_Buffer_Type {code} cannot be read or written") from None


def of_primitive(number: int) -> ElementType:
    """Return the element type of an XLA `PrimitiveType`; TypeError if there is none."""
    try:
        return _BY_PRIMITIVE[number]
    except KeyError:
        raise TypeError(f"values of XLA primitive type {number} cannot be passed") from None


def of_type(name: str) -> ElementType:
    """Return the element type by StableHLO's name ("i8" has 8 bits) or XLA's ("s8")."""
    try:
        return _BY_TYPE[name]
    except KeyError:
        raise TypeError(f"programs have no element type {name!r}") from None


def of_numpy(dtype: Any) -> ElementType:
    """Return the element type for a user's dtype, or raise TypeError.

    A name means what it does to numpy ("i8" has 8 bytes), else to StableHLO or XLA ("bf16"). The
    name of an element type, as an attribute gave it, means that type.
    """
    if type(dtype) is TypeName:
        return of_type(dtype)
    try:
        return _BY_DTYPE[dtype]
    except (KeyError, TypeError):  # The dtype is not in the cache, or cannot be hashed.
        pass
    if dtype is None:  # numpy takes it for float64.
        raise TypeError("the dtype is None")
    import numpy

    known = _BY_TYPE.get(dtype) if isinstance(dtype, str) else None
    try:
        resolved = numpy.dtype(dtype)
    except TypeError:
        if known is None:
            raise
    else:  # numpy reads "f16" as its long double, which PJRT lacks, so `known` is used.
        known = _BY_NUMPY.get(resolved.name, known)
        if known is None:
            raise TypeError(
                f"PJRT has no element type for numpy's {resolved.name!r}\n\n"
                "hint: numbers and booleans have one, also those of ml_dtypes"
            )
    _BY_DTYPE[dtype if isinstance(dtype, str) else resolved] = known
    return known


def rank(dtype: numpy.dtype[Any]) -> int:
    """Return 0 for booleans, 1 for integers, 2 for floats, 3 for complex numbers."""
    if dtype.kind in _RANKS:
        return _RANKS[dtype.kind]
    return 1 if "int" in dtype.name else 2  # All other kinds are types of ml_dtypes.


@cache
def numpy_dtype(code: int) -> numpy.dtype[Any]:
    """Return the numpy dtype of a `PJRT_Buffer_Type`; TypeError if ml_dtypes is too old."""
    import numpy

    name = of_code(code).numpy
    scalar = numpy.bool_ if name == "bool" else getattr(numpy, name, None)
    if scalar is None:
        import ml_dtypes

        scalar = getattr(ml_dtypes, name, None)
    if scalar is None:
        raise TypeError(f"the installed ml_dtypes has no {name}: install a newer one")
    dtype: numpy.dtype[Any] = numpy.dtype(scalar)
    return dtype


def require(element: ElementType, version: ApiVersion) -> None:
    """Refuse a type that a plugin of this version does not know: it would crash on the number."""
    if element.since > version.minor:
        since = ApiVersion(0, element.since)
        raise UnsupportedByPluginError(
            f"the plugin does not know {element.name}: the type came with PJRT API {since}, "
            f"the plugin has {version}",
            function="PJRT_Buffer_Type",
            since=str(since),
            have=str(version),
        )
