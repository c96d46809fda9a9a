"""A plugin for mypy: what `api.call("PJRT_...", field=value)` takes and gives, as declared.

It types each method `call`, `_call` and `_ask` that is given a C function's name as a literal; by
another name of a function the fields and the result stay `Any`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

from mypy.errorcodes import CALL_ARG
from mypy.nodes import ARG_NAMED_OPT, ARG_STAR2, StrExpr
from mypy.options import Options
from mypy.plugin import CheckerPluginInterface, MethodSigContext, Plugin
from mypy.types import (
    AnyType,
    ExtraAttrs,
    FunctionLike,
    NoneType,
    TupleType,
    Type,
    TypeOfAny,
    UnionType,
)

sys.path.insert(0, str(Path(__file__).parent))
import capi

NUMBERS = {"bool": "bool", "float": "float", "double": "float"}
TEXTS = ("const char*", "char*")


class Calls(Plugin):
    """The hook, and the declarations that it reads."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.api = capi.read()

    def get_method_signature_hook(
        self, fullname: str
    ) -> Callable[[MethodSigContext], FunctionLike] | None:
        package, _, method = fullname.rpartition(".")
        ours = package.startswith("pjrt_hub.") and method in ("call", "_call", "_ask")
        return self.sign if ours else None

    def sign(self, context: MethodSigContext) -> FunctionLike:
        """Give the signature of a call whose first argument names a declared function."""
        signature = context.default_signature
        named = context.args[0] if context.args else []
        if len(named) != 1 or not isinstance(named[0], StrExpr):
            return signature
        name = named[0].value
        if not name.startswith(("PJRT_", "PLUGIN_")):
            return signature
        if name not in self.api.functions:
            context.api.fail(f"no C function is called {name}", named[0], code=CALL_ARG)
            return signature
        members = self.api.structs[f"{name}_Args"].own_members
        kinds, names, types = [], [], []
        rows = zip(signature.arg_kinds, signature.arg_names, signature.arg_types, strict=True)
        for kind, parameter, each in rows:
            if kind != ARG_STAR2:
                kinds.append(kind)
                names.append(parameter)
                types.append(each)
                continue
            for member in [each for each in members if each.direction != "out"]:
                kinds.append(ARG_NAMED_OPT)
                names.append(member.name)
                types.append(self.taken(context.api, member))
        return signature.copy_modified(
            arg_kinds=kinds,
            arg_names=names,
            arg_types=types,
            ret_type=self.result(context.api, members),
        )

    def taken(self, checker: CheckerPluginInterface, member: capi.Member) -> Type:
        """Return the type of an input: a number, an address, or what is copied for the call."""
        if not self.is_pointer(member):
            return self.number(checker, member.ctype)
        return AnyType(TypeOfAny.explicit) if self.is_copied(member) else integer(checker)

    def is_pointer(self, member: capi.Member) -> bool:
        """Tell whether a field holds an address."""
        return (
            member.params is not None
            or member.ctype.endswith("*")
            or member.ctype in self.api.callbacks
        )

    def is_copied(self, member: capi.Member) -> bool:
        """Tell whether a text, a list or members may be given for a pointer."""
        target = member.ctype.removesuffix("*").strip().removeprefix("const ").strip()
        filled = target in self.api.structs and bool(self.api.structs[target].own_members)
        return bool(member.count) or target == "char" or filled

    def number(self, checker: CheckerPluginInterface, ctype: str) -> Type:
        """Return the type of a plain value."""
        if ctype in self.api.structs:
            return AnyType(TypeOfAny.explicit)
        return checker.named_generic_type(f"builtins.{NUMBERS.get(ctype, 'int')}", [])

    def result(self, checker: CheckerPluginInterface, members: list[capi.Member]) -> Type:
        """Return the type of a result: nothing, the only output, or an object of several."""
        found = outputs(members)
        types = [self.given(checker, member, members) for member in found]
        if not types:
            return NoneType()
        if len(types) == 1:
            return types[0]
        several = checker.named_generic_type("builtins.object", [])
        several.extra_attrs = ExtraAttrs(
            {member.name: each for member, each in zip(found, types, strict=True)}
        )
        return several

    def given(
        self, checker: CheckerPluginInterface, member: capi.Member, members: list[capi.Member]
    ) -> Type:
        """Return the type of an output; one that is newer than its function may be None."""
        known = self.output(checker, member)
        oldest = min(each.since for each in members)
        return UnionType([known, NoneType()]) if member.since > oldest else known

    def output(self, checker: CheckerPluginInterface, member: capi.Member) -> Type:
        if not self.is_pointer(member):
            return self.number(checker, member.ctype)
        if not member.count:
            return integer(checker)
        if member.ctype == "const PJRT_NamedValue*":
            words = [checker.named_generic_type("builtins.str", []), AnyType(TypeOfAny.explicit)]
            return checker.named_generic_type("builtins.dict", words)
        text = checker.named_generic_type("builtins.bytes", [])
        if member.ctype in TEXTS:
            return text
        element = member.ctype.removesuffix("*").strip().removesuffix("const").strip()
        element = element.removeprefix("const ")
        tuples = checker.named_generic_type("builtins.tuple", [AnyType(TypeOfAny.explicit)])
        each: Type
        if "," in member.count:
            each = text
        elif member.count.startswith("sum "):
            each = tuples.copy_modified(args=[self.number(checker, element)])
        elif element in self.api.structs and not element.endswith("*"):
            own = self.api.structs[element].own_members
            each = TupleType([self.number(checker, row.ctype) for row in own], tuples)
        elif element.endswith("*"):
            each = integer(checker)
        else:
            each = self.number(checker, element)
        return checker.named_generic_type("builtins.list", [each])


def integer(checker: CheckerPluginInterface) -> Type:
    """Return the type of an address."""
    return checker.named_generic_type("builtins.int", [])


def outputs(members: list[capi.Member]) -> list[capi.Member]:
    """Return what a function answers, as in `call._outputs`."""
    answers = [
        each
        for each in members
        if each.direction == "out" or (each.direction == "inout" and not each.count)
    ]
    counts = {count.removeprefix("sum ") for each in answers for count in each.count.split(",")}
    owners = {
        name
        for deleter in answers
        for holder in answers
        if deleter.shown_ctype == f"void (*)({holder.shown_ctype})"
        for name in (deleter.name, holder.name)
    }
    return [
        each
        for each in answers
        if each.name not in counts and (each.count or each.name not in owners)
    ]


def plugin(version: str) -> type[Plugin]:
    """Return what mypy asks for."""
    return Calls


#: This is a part of the key of mypy's cache.
__version__ = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted(capi.DECLARATIONS.glob("*.pjrt")))
).hexdigest()
