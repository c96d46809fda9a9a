"""Reads the declarations of the PJRT C API and writes everything that is made from them.

Owns the language (`declarations/README.md` in `running/capi`), the layout rule and what the build
makes: `table.json`, the C header and the cffi declarations. Standard library only, because the
build imports it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DECLARATIONS = ROOT / "pjrt_hub" / "running" / "capi" / "declarations"

#: Sizes and alignments in bytes on LP64; pointers and types as wide as `size_t` have the default.
NARROW = {"bool": 1, "char": 1, "uint8_t": 1, "int": 4, "int32_t": 4, "uint32_t": 4, "float": 4}
WORD = 8

HEADS = {"": ("struct_size", "extension_start"), "sized": ("struct_size",), "bare": ()}

BLOCKS = ("defaults", "constant", "opaque", "enum", "callback", "struct", "extension")

COMMENT = re.compile(r"(^|\s)#.*$")
SINCE = re.compile(r"\s+@(\d+)$")
MEMBER = re.compile(
    r"(?P<direction>in|out|inout)\s+(?P<ctype>.+?)\s*\b(?P<name>\w+)"
    r"(?:\[(?P<count>.+)\]|\((?P<params>.*)\))?$"
)
CALLBACK = re.compile(r"(?P<returns>.+?)\s*\b(?P<name>\w+)\((?P<params>.*)\)$")
FUNCTION = re.compile(r"(?P<name>\w+)(?:\s+(?P<head>sized|bare))?(?:\s*->\s*(?P<returns>.+))?$")


class DeclarationError(ValueError):
    """A line of a declaration file cannot be read; the message holds file, line and text."""


@dataclass
class Member:
    """One field of a struct; `function` names the callee where the field is a slot."""

    name: str
    ctype: str
    direction: str = "in"
    count: str = ""
    since: int = 0
    params: str | None = None
    function: str = ""
    in_union: bool = False
    implied: bool = False

    @property
    def length(self) -> int:
        """How many elements are stored in the struct itself: more than one for a C array."""
        return int(self.count) if self.count.isdigit() else 1

    @property
    def shown_ctype(self) -> str:
        """The type as the table shows it."""
        if self.function:
            return f"{self.function}*"
        return self.ctype if self.params is None else f"{self.ctype} (*)({self.params})"


@dataclass
class Struct:
    """A struct; `extension` is its (key, type number) where it is a node of the extension chain."""

    name: str
    members: list[Member] = field(default_factory=list)
    since: int = 0
    extension: tuple[str, int] | None = None

    @property
    def own_members(self) -> list[Member]:
        return [member for member in self.members if not member.implied]


@dataclass
class Function:
    """A C function: it takes one pointer, to its args struct."""

    name: str
    returns: str

    @property
    def args(self) -> str:
        return f"{self.name}_Args"


@dataclass
class Callback:
    """A pointer-to-function type."""

    name: str
    returns: str
    params: str


@dataclass
class Api:
    """Everything that the declaration files say."""

    constants: dict[str, int] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    enum_since: dict[str, dict[str, int]] = field(default_factory=dict)
    callbacks: dict[str, Callback] = field(default_factory=dict)
    structs: dict[str, Struct] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)

    @property
    def slots(self) -> list[Member]:
        """The function table in order."""
        return [member for member in self.structs["PJRT_Api"].members if member.function]

    # The layout follows C's rule for LP64, so that the table needs no compiler. The tests compare
    # it with what the C compiler reports.

    def size(self, name: str) -> int:
        """Return `sizeof` of a struct: with tail padding."""
        return _round_up(*self.extent(name))

    def struct_size(self, name: str) -> int:
        """Return what is sent as `struct_size`: the end of the last field, without tail padding."""
        return self.extent(name)[0]

    def first_size(self, name: str) -> int:
        """Return the end of the last field that a struct had from its beginning."""
        since = self.structs[name].since
        placed = [each for each in self.offsets(name) if each[0].since <= since]
        return max(offset + self.width(member)[0] for member, offset in placed)

    def extent(self, name: str) -> tuple[int, int]:
        """Return the end of the last field and the alignment."""
        placed = list(self.offsets(name))
        widths = [self.width(member) for member, _ in placed]
        end = max(offset + size for (_, offset), (size, _) in zip(placed, widths, strict=True))
        return end, max(align for _, align in widths)

    def offsets(self, name: str) -> Iterator[tuple[Member, int]]:
        """Return each member with its offset; the members of a union share theirs."""
        end = 0
        for _, together in groupby(enumerate(self.structs[name].members), _place):
            group = [member for _, member in together]
            widths = [self.width(member) for member in group]
            size, align = max(size for size, _ in widths), max(align for _, align in widths)
            start = _round_up(end, align)
            yield from ((member, start) for member in group)
            # A union is padded to its alignment; a single field is not.
            end = start + (_round_up(size, align) if group[0].in_union else size)

    def width(self, member: Member) -> tuple[int, int]:
        """Size and alignment of one member."""
        if member.function or member.params is not None or member.ctype.endswith("*"):
            return WORD, WORD
        if member.ctype in self.structs:
            return self.size(member.ctype) * member.length, self.extent(member.ctype)[1]
        size = 4 if member.ctype in self.enums else NARROW.get(member.ctype, WORD)
        return size * member.length, size


def _place(numbered: tuple[int, Member]) -> int:
    """Group the members of a union (a struct has one at most) and leave the others alone."""
    number, member = numbered
    return -1 if member.in_union else number


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


# Reading the header


def read(directory: Path = DECLARATIONS) -> Api:
    """Read every declaration file.

    Raises:
        DeclarationError: a line does not follow the language, or a name is declared twice or never.
    """
    api = Api()
    for path in sorted(directory.glob("*.pjrt")):
        _File(api, path).read()
    _resolve(api)
    return api


class _File:
    """One declaration file while it is read: the block that indented lines belong to."""

    def __init__(self, api: Api, path: Path) -> None:
        self.api = api
        self.path = path
        self.error, self.chain = "PJRT_Error*", "PJRT_Extension_Base*"
        self.enum = ""
        self.struct: Struct | None = None
        self.union = False

    def read(self) -> None:
        line = ""
        for number, raw in enumerate(self.path.read_text().splitlines(), 1):
            line = f"{line} {raw}" if line else raw
            line = COMMENT.sub("", line).rstrip()
            if not line or line.count("(") > line.count(")"):
                continue
            try:
                self.line(line)
            except (KeyError, ValueError) as exc:
                raise DeclarationError(f"{self.path.name}:{number}: {exc}: {line!r}") from exc
            line = ""

    def line(self, line: str) -> None:
        since = int(found[1]) if (found := SINCE.search(line)) else 0
        text = SINCE.sub("", line)
        words = text.split()
        if text[0] != " ":
            self.enum, self.struct, self.union = "", None, False
            if words[0] in BLOCKS:
                block = getattr(self, f"_{words[0]}")
                block(words[1:], since)
            else:
                self._function(text, since)
        elif self.enum:
            name, value = words
            self.api.enums[self.enum][name] = int(value)
            if since:
                self.api.enum_since[self.enum][name] = since
        elif self.struct:
            self._member(text, since)
        else:
            raise ValueError("an indented line needs a block")

    def _defaults(self, words: list[str], _since: int) -> None:
        self.error, self.chain = (f"{word}*" for word in words)

    def _constant(self, words: list[str], _since: int) -> None:
        self.api.constants[words[0]] = int(words[1])

    def _opaque(self, words: list[str], _since: int) -> None:
        self.api.opaque += words

    def _enum(self, words: list[str], _since: int) -> None:
        (self.enum,) = words
        self.api.enums[self.enum] = {}
        self.api.enum_since[self.enum] = {}

    def _callback(self, words: list[str], _since: int) -> None:
        found = CALLBACK.match(" ".join(words))
        if not found:
            raise ValueError("a callback is RETURN NAME(PARAMETERS)")
        self.api.callbacks[found["name"]] = Callback(**found.groupdict())

    def _struct(self, words: list[str], since: int) -> None:
        name, head = (*words, "")[:2]
        self._open(name, head, since)

    def _extension(self, words: list[str], since: int) -> None:
        key, number, name = words
        struct = self._open(name, "bare", since)
        struct.extension = (key, int(number))
        struct.members.append(Member("base", "PJRT_Extension_Base", implied=True))

    def _function(self, text: str, since: int) -> None:
        found = FUNCTION.match(text)
        if not found:
            raise ValueError("neither a keyword nor a function")
        function = Function(found["name"], found["returns"] or self.error)
        if function.name in self.api.functions:
            raise ValueError("declared twice")
        self.api.functions[function.name] = function
        self._open(function.args, found["head"] or "", since)

    def _open(self, name: str, head: str, since: int) -> Struct:
        if name in self.api.structs:
            raise ValueError("declared twice")
        types = {"struct_size": "size_t", "extension_start": self.chain}
        implied = [Member(word, types[word], implied=True) for word in HEADS[head]]
        self.struct = self.api.structs[name] = Struct(name, implied, since)
        return self.struct

    def _member(self, text: str, since: int) -> None:
        assert self.struct is not None
        words = text.split()
        if words == ["union"]:
            self.union = True
            return
        if not text.startswith("    "):
            self.union = False
        if words[0] in ("in", "out", "inout"):
            found = MEMBER.match(text.strip())
            if not found:
                raise ValueError("a field is DIRECTION TYPE NAME")
            count = (found["count"] or "").replace("][", ",")
            member = Member(
                found["name"], found["ctype"], found["direction"], count, since, found["params"]
            )
        else:
            name, function = (words[0], words[-1])
            member = Member(name, "", function=function, since=since)
        member.in_union = self.union
        self.struct.members.append(member)


def _resolve(api: Api) -> None:
    """Give args structs and fields the since of what they belong to, and checks every name."""
    for slot in api.slots:
        api.structs[api.functions[slot.function].args].since = slot.since
    for struct in api.structs.values():
        for member in struct.members:
            member.since = member.since or struct.since
            if member.function and member.function not in api.functions:
                raise DeclarationError(f"{struct.name}: no function {member.function}")
    known = {*api.structs, *api.enums, *api.callbacks, *api.opaque, *NARROW}
    known |= {"void", "size_t", "int64_t", "uint64_t", "intptr_t", "uintptr_t", "const", "struct"}
    for struct in api.structs.values():
        for member in struct.members:
            for word in re.findall(r"\w+", member.ctype):
                if word not in known:
                    raise DeclarationError(f"{struct.name}.{member.name}: no type {word}")


# Writing the table


def c_types(api: Api) -> str:
    """Return every type in C, in an order that compiles; also what cffi parses."""
    lines = [f"#define {name} {value}" for name, value in api.constants.items()]
    lines += [f"typedef struct {name} {name};" for name in [*api.opaque, *api.structs]]
    for name, entries in api.enums.items():
        body = ", ".join(f"{entry} = {value}" for entry, value in entries.items())
        lines.append(f"typedef enum {{ {body} }} {name};")
    lines += [f"typedef {c.returns} (*{c.name})({c.params});" for c in _callbacks(api)]
    for struct in _by_value_first(api):
        lines += [f"struct {struct.name} {{", *_c_members(api, struct), "};"]
    return "\n".join(lines) + "\n"


def header(api: Api) -> str:
    """Return the text of `pjrt_api.h`."""
    return "\n".join(
        [
            "/* Made by tools/capi.py from pjrt_hub/running/capi/declarations. */",
            "#ifndef PJRT_HUB_PJRT_API_H",
            "#define PJRT_HUB_PJRT_API_H",
            "#include <stdbool.h>",
            "#include <stddef.h>",
            "#include <stdint.h>",
            c_types(api),
            c_sizes(api),
            "#endif",
            "",
        ]
    )


def c_sizes(api: Api) -> str:
    """Return the sizes of structs, now and at first, and the functions that return an error."""
    rows = [api.functions[slot.function] for slot in api.slots]
    names = [function.name for function in rows if function.returns != "void"]
    lines = [f"#define {name}_STRUCT_SIZE {api.struct_size(name)}" for name in api.structs]
    lines += [f"#define {name}_FIRST_SIZE {api.first_size(name)}" for name in api.structs]
    lines += ["", "#define PJRT_API_FUNCTIONS(DO) \\"]
    lines += [f"  DO({name}) \\" for name in names[:-1]] + [f"  DO({names[-1]})"]
    return "\n".join(lines) + "\n"


def _callbacks(api: Api) -> Iterator[Callback]:
    """Callbacks, those that another one takes as a parameter first."""
    waiting = dict(api.callbacks)
    while waiting:
        for name, callback in list(waiting.items()):
            if not (set(re.findall(r"\w+", callback.params)) & waiting.keys() - {name}):
                yield waiting.pop(name)


def _by_value_first(api: Api) -> Iterator[Struct]:
    """Structs, those that another one holds by value first."""
    done: set[str] = set()

    def visit(name: str) -> Iterator[Struct]:
        if name not in done:
            done.add(name)
            for member in api.structs[name].members:
                if member.ctype in api.structs:
                    yield from visit(member.ctype)
            yield api.structs[name]

    for name in api.structs:
        yield from visit(name)


def _c_members(api: Api, struct: Struct) -> Iterator[str]:
    open_union = False
    for member in struct.members:
        if member.in_union != open_union:
            yield "  union {" if member.in_union else "  };"
            open_union = member.in_union
        yield f"  {_c_member(api, member)};"
    if open_union:
        yield "  };"


def _c_member(api: Api, member: Member) -> str:
    if member.function:
        function = api.functions[member.function]
        return f"{function.returns} (*{member.name})({function.args}*)"
    if member.params is not None:
        return f"{member.ctype} (*{member.name})({member.params or 'void'})"
    array = f"[{member.length}]" if member.length > 1 else ""
    return f"{member.ctype} {member.name}{array}"


def table(api: Api) -> str:
    """Return the text of `table.json`, which `table.py` reads.

    A struct is one text: its struct_size and its fields, ";" between them and "|" in them.
    """
    rows = {
        "functions": {
            slot.name: (number, slot.since, api.functions[slot.function].returns)
            for number, slot in enumerate(api.slots)
        },
        "structs": {name: _struct(api, struct) for name, struct in api.structs.items()},
        "enums": api.enums,
        "extensions": {
            struct.extension[0]: (struct.extension[1], name, _functions(api, name))
            for name, struct in api.structs.items()
            if struct.extension
        },
    }
    return json.dumps(rows, separators=(",", ":"))


def _struct(api: Api, struct: Struct) -> str:
    rows = [str(api.struct_size(struct.name))]
    for member in struct.own_members:
        words = (member.direction, member.shown_ctype, member.name, member.count)
        if any(mark in word for word in words for mark in "|;"):
            raise DeclarationError(f"{struct.name}.{member.name} holds what parts a row")
        rows.append("|".join((*words, str(member.since or ""))))
    return ";".join(rows)


def _functions(api: Api, node: str) -> dict[str, tuple[int, str, str]]:
    return {
        member.name: (offset, member.function, api.functions[member.function].returns)
        for member, offset in api.offsets(node)
        if member.function
    }
