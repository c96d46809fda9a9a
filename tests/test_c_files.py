"""The rules of the C files: their order, how they fill structs, and how they allocate memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: The folder of the compiled call path.
NATIVE = ROOT / "pjrt_hub" / "running" / "capi" / "native"
#: Headers that are shared by the files beside them, and whose comments give the files' order.
MAPS = (
    "pjrt_hub/running/capi/native/native.h",
    "pjrt_hub/running/interpose/layers/layers.h",
    "pjrt_hub/running/interpose/layers/discrete/discrete.h",
    "pjrt_hub/kit/authoring/native/plugin.h",
)
CLAIM = re.compile(r"Each\s+file\s+uses\s+those\s+before\s+it:([^.;]*)\.")
#: The comment in a shared header that begins the declarations of one file.
SECTION = re.compile(r"^/\* (\w+)\.c\b", re.MULTILINE)
NOISE = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|//[^\n]*", re.DOTALL)
MACRO = re.compile(r"^#define (\w+)((?:.*\\\n)*.*)$", re.MULTILINE)
INLINE = re.compile(
    r"^static inline [^;{]*?\b(\w+)\([^;{]*\{(?:[^\n]*\}$|.*?^\})", re.MULTILINE | re.DOTALL
)
#: A definition with external linkage at the start of a line; names in capitals are macros.
DEFINITION = re.compile(
    r"^(?!static\b|typedef\b|extern\b|enum\b|[A-Z_]+\b)(?:const |struct |unsigned )*"
    r"[A-Za-z]\w*[^\S\n]+[^;={}()]*?\b(\w+)(?=\s*[(=;[,])",
    re.MULTILINE,
)
MORE = re.compile(r"^[A-Za-z][\w ]*\*\w+((?:, \*\w+)+);", re.MULTILINE)
#: Functions that Python calls: methods, slots of types, getters, setters and vectorcalls.
ENTRIES = (
    re.compile(r"\{ , (?:\(PyCFunction\)\(void \(\*\)\(void\)\))?(\w+), METH_"),
    re.compile(r"\{Py_(?!tp_(?:new|traverse|doc|methods|members|getset)\b)[a-z]+_\w+, (\w+)\}"),
    re.compile(r"\{ , (\w+), \w+,\s+, NULL\}"),
    re.compile(r"\{ , \w+, (?!NULL)(\w+),\s+, NULL\}"),
    re.compile(r"->vectorcall = (\w+);"),
)
BODY = re.compile(r"^[A-Za-z][\w *]*?\b(\w+)\([^;{}]*\) \{\s*([^\n]*)", re.MULTILINE)
#: Entries without GUARD, which share at most a flag, have a mutex, or call one that has GUARD.
UNGUARDED = frozenset(
    re.findall(
        r"\w+",
        """
        asks_python bound_dealloc capsule_address client_in_call compact_type
        current_generation custom_partitioner dispatcher_deleter dispatcher_dispatch
        dispatcher_keep dispatcher_notify dispatcher_wake dlpack_borrow dlpack_lend ffi_deleter
        function_compile function_dealloc functions_call functions_dealloc get_pjrt_api
        host_transfer_end in_call_dealloc open_library owned_finalize preload_library
        process_aside process_ends process_install process_interrupt process_interrupted
        process_leave process_read_error staging_dealloc staging_getbuffer staging_kept
        staging_of staging_trim_all upcalls_end view_getbuffer view_releasebuffer xla_transform
        """,
    )
)


def code(path: Path) -> str:
    return NOISE.sub(" ", path.read_text(encoding="utf-8"))


FOLDERS = [(ROOT / header).parent for header in MAPS]


def claimed(text: str) -> list[str]:
    found = CLAIM.search(text)
    assert found, "the header claims no order"
    return re.findall(r"\w+", found[1])


def definitions(text: str) -> list[str]:
    more = [name for names in MORE.findall(text) for name in re.findall(r"\w+", names)]
    return DEFINITION.findall(text) + more


def uses(folder: Path) -> dict[str, dict[str, set[str]]]:
    """File -> file that it uses -> names that it uses, also through macros and inline functions."""
    files = {path.stem: code(path) for path in sorted(folder.glob("*.c"))}
    header = "\n".join(code(path) for path in sorted(folder.glob("*.h")))
    within = {found[1]: found[0] for found in INLINE.finditer(header)}
    within |= {found[1]: found[2] for found in MACRO.finditer(header)}
    owner = {name: file for file, text in files.items() for name in definitions(text)}

    def names_in(text: str, seen: set[str]) -> set[str]:
        found = set(re.findall(r"(?<![.>])\b[A-Za-z_]\w*", text)) - seen
        seen |= found
        for name in found & within.keys():
            names_in(within[name], seen)
        return seen

    used: dict[str, dict[str, set[str]]] = {file: {} for file in files}
    for file, text in files.items():
        for name in names_in(text, set()) & owner.keys():
            if owner[name] != file:
                used[file].setdefault(owner[name], set()).add(name)
    return used


def against(order: list[str], used: dict[str, dict[str, set[str]]]) -> list[str]:
    """The uses of files that come later in the order."""
    return [
        f"{file} uses {', '.join(sorted(names))} of {other}"
        for place, file in enumerate(order)
        for other, names in used[file].items()
        if other not in order[:place]
    ]


@pytest.mark.parametrize("header", MAPS)
def test_each_file_uses_those_before_it(header):
    path = ROOT / header
    order, used = claimed(path.read_text(encoding="utf-8")), uses(path.parent)
    assert sorted(order) == sorted(used)
    assert against(order, used) == []


def test_the_call_path_defines_nothing_that_it_does_not_declare():
    declared = {word for path in NATIVE.glob("*.h") for word in re.findall(r"\w+", code(path))}
    defined = {name for path in NATIVE.glob("*.c") for name in definitions(code(path))}
    assert defined - declared == {"PyInit_hotpath"}


@pytest.mark.parametrize("header", MAPS)
def test_the_sections_of_a_header_are_in_that_order(header):
    text = (ROOT / header).read_text(encoding="utf-8")
    order = claimed(text)
    sections = [name for name in SECTION.findall(text) if name in order]
    assert len(sections) > 5
    assert sections == sorted(sections, key=order.index)


def test_what_python_calls_begins_with_the_lock_of_pythons_without_a_gil():
    text = "\n".join(map(code, sorted(NATIVE.glob("*.c"))))
    begin = dict(BODY.findall(text))
    entries = {name for pattern in ENTRIES for name in pattern.findall(text)}
    entries.remove("Py_GenericAlias")  # this is Python's own function
    assert len(entries) > 100
    assert {name for name in entries if begin[name] != "GUARD;"} == UNGUARDED


def found_in_code(pattern: str) -> list[str]:
    return [
        f"{path.name}: {found[0]}"
        for folder in FOLDERS
        for path in sorted(folder.rglob("*.[ch]"))
        for found in re.finditer(pattern, code(path))
    ]


def test_one_macro_fills_structs():
    assert found_in_code(r"struct_size = \w+(?:_Args|Options)_STRUCT_SIZE") == []


def test_no_format_takes_a_length():
    """A format with `#` that is built with Python 3.13 fails on 3.11 despite the stable ABI."""
    paths = [path for folder in FOLDERS for path in folder.rglob("*.[ch]")]
    assert [path for path in paths if re.search(r'"[^"\n]*[syz]#', path.read_text("utf-8"))] == []


def test_memory_is_of_one_family():
    """Memory comes from malloc's family only, because any file may free() it; see structs.h."""
    assert len(found_in_code(r"\b(?:malloc|calloc|realloc)\(")) > 30
    assert found_in_code(r"\bPyMem_\w+\(") == []
    assert found_in_code(r"\bPyObject_(?:[MC]alloc|Realloc|Free|Del|(?:GC_)?New\w*|GC_Del)\(") == []
    assert found_in_code(r"\b(?:strn?dup|alloca|posix_memalign|asprintf)\(") == []


def test_a_use_is_found_however_it_is_made(tmp_path):
    (tmp_path / "map.h").write_text("""
/* Each file uses those before it: low, high, top. */
#define TWICE(x) \\
  low_double(x)
static inline int more(int x) {
  if (x > 1) {
    x--;
  }
  return TWICE(x) + 1;
}
static inline int less(int x) { return high_sink - x; }
""")
    (tmp_path / "low.c").write_text("""
/* high_sink is a word here */
static int hidden(void) { return 0; }
int low_double(int x) { return 2 * x + (int)sizeof "high_sink" + hidden(); }
unsigned low_count = 1;
PyObject *low_a, *low_b;
""")
    (tmp_path / "high.c").write_text("""
struct Thing *high_sink = NULL;
static int hidden(void) { return more(1); }
int high(struct Thing *thing) { return thing->low_a + thing.low_b; }
""")
    (tmp_path / "top.c").write_text("""
OWN(low_count)
PyObject *top(int x, int y)
{
  low_b = less(x);
}
""")
    used = uses(tmp_path)
    assert used == {
        "low": {},
        "high": {"low": {"low_double"}},
        "top": {"low": {"low_b", "low_count"}, "high": {"high_sink"}},
    }
    order = claimed((tmp_path / "map.h").read_text())
    assert against(order, used) == []
    assert against(["high", "low", "top"], used) == ["high uses low_double of low"]
