"""Keys with values of every type and beyond every bound; each with the message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from manifest_trees import HEAD, LIBRARY, TOY, USABLE, Case, one, refused, usable

WRONG: dict[str, tuple[str, str]] = {
    "schema 2": ("schema = 2", "schema: found 2, expected 1, the only one that is known here"),
    "schema 0": ("schema = 0", "schema: found 0, expected 1, the only one that is known here"),
    "schema 2 with all else unknown": (
        "schema = 2\nname = 1\n[library]",
        "schema: found 2, expected 1, the only one that is known here",
    ),
    "schema as text": ('schema = "1"', 'schema: found "1", expected an integer'),
    "schema as truth": ("schema = true", "schema: found true, expected an integer"),
    "schema as a float": ("schema = 1.0", "schema: found a float, expected an integer"),
    "no name": ("schema = 1", "name: not there, expected a string"),
    "no platform": (
        'schema = 1\nname = "toy"\n' + LIBRARY,
        "platform: not there, expected a string",
    ),
    "no library": (HEAD, "library: not there, expected at least one [[library]] with a path"),
    "only libraries of packages": (
        HEAD + "[[library]]\ndistribution = 'a'\npath = 'b'\n[[library]]\nvariable = 'C'",
        "library: found an array, expected at least one [[library]] with a path",
    ),
    "only rows of a registry": (
        HEAD + "registry = ['toy']",
        "library: not there, expected at least one [[library]] with a path",
    ),
    "a library as a table": (
        HEAD + "[library]\npath = '/a'",
        "library: found a table, expected an array of tables ([[library]])",
    ),
    "a library as text": (
        HEAD + "library = '/a'",
        'library: found "/a", expected an array of tables ([[library]])',
    ),
    "libraries as texts": (
        HEAD + "library = ['/a']",
        "library: found an array, expected an array of tables ([[library]])",
    ),
    "a library without a path": (
        HEAD + "[[library]]",
        "library[0].path: not there, expected a string",
    ),
    "the second library without a path": (
        TOY + "[[library]]\nsha256 = ''",
        "library[1].path: not there, expected a string",
    ),
}
NAME_RULE = "a name of ASCII [a-z0-9_], 1 to 32 characters"
PATH_RULE = "a path with forward slashes, without '..', '*', '?', '['"
VERSION_RULE = "a PJRT API version such as '0.81'"
TARGET_RULE = "a target such as 'linux-x86_64-glibc2.28'"
DIGITS_RULE = "64 digits of [0-9a-f]"
#: A value of each type, and how an error shows it.
SHOWN = {
    '"a b"': '"a b"',
    "-7": "-7",
    "true": "true",
    "false": "false",
    "1.5": "a float",
    "[1]": "an array",
    "[]": "an array",
    "{a = 1}": "a table",
}
#: Strings, and how an error shows them.
TEXTS = {
    "''": '""',
    "'\"'": '"\\""',
    "'\\'": '"\\\\"',
    '"\\b\\t\\n\\f\\r"': '"\\b\\t\\n\\f\\r"',
    '"\\u0001\\u001f\\u007f"': '"\\u0001\\u001F\\u007F"',
    '"\t"': '"\\t"',
    "'cud\u0430'": '"cud\\u0430"',
    '"\\u00e9\\uFFFF"': '"\\u00E9\\uFFFF"',
    "'😀'": '"\\U0001F600"',
    '"\\U0010FFFF"': '"\\U0010FFFF"',
    "'\u202e'": '"\\u202E"',
    "'\u0085'": '"\\u0085"',
    f"'{'X' * 200}'": f'"{"X" * 200}"',
    f"'{'X' * 201}'": f'"{"X" * 200}"...',
    f"'{'é' * 300}'": '"' + "\\u00E9" * 200 + '"...',
    "'C U D A'": '"C U D A"',
    "'-'": '"-"',
    f"'{'a' * 33}'": f'"{"a" * 33}"',
    "'Cuda'": '"Cuda"',
    "'\u0661'": '"\\u0661"',
}


def put(key: str, value: str) -> str:
    """Return a manifest with `value` at a place such as `probe.driver.minimum`."""
    top, _, inner = key.partition(".")
    if key in ("name", "platform", "schema"):
        lines = [
            f"{key} = {value}" if each.startswith(f"{key} ") else each for each in HEAD.split("\n")
        ]
        return "\n".join(lines) + LIBRARY
    if not inner:
        return f"{HEAD}{key} = {value}\n" + LIBRARY * (key != "library")
    if top.startswith("library[0]"):
        others = "" if inner == "path" else "path = '{root}/lib/toy.so'\n"
        return f"{HEAD}[[library]]\n{others}{inner} = {value}\n"
    if top.startswith("preload[0]"):
        given = {"libraries": "['a.so']", "folder": "'{root}/lib'", inner: value}
        return TOY + "[[preload]]\n" + "".join(f"{name} = {each}\n" for name, each in given.items())
    last = inner.split(".")
    if top == "options" and len(last) == 2:
        kind = "" if last[1] == "type" else "type = 'int64'\n"
        return f"{TOY}[options.{last[0]}]\n{kind}{last[1]} = {value}\n"
    if len(last) == 2:
        more = "value = '1'\n" if key.endswith(".when") else ""
        return f"{TOY}[{top}.{last[0]}]\n{more}{last[1]} = {value}\n"
    return f"{TOY}[{top}]\n{inner} = {value}\n"


#: The shapes of `SHOWN` that are no mistake, and what is expected -> the keys that take it.
TYPES: dict[tuple[str, str], str] = {
    (
        "-7",
        "an integer",
    ): "schema priority probe.driver.minimum options.a.minimum options.a.maximum",
    ('"a b"', "a string"): (
        "name platform description library[0].path library[0].target library[0].sha256 "
        "preload[0].folder probe.kind probe.vendor probe.driver.file options.a.type "
        "options.a.since environment.A.value environment.A.when api.minimum api.maximum"
    ),
    ("[]", "an array of strings"): "aliases preload[0].libraries probe.files probe.devices",
    ("[]", "an array of tables ([[library]])"): "library",
    ("[]", "an array of tables ([[preload]])"): "preload",
    ("{a = 1}", "a table"): "probe probe.driver options options.a environment api",
    ('"a b" {a = 1}', "a string"): "environment.A",
}


def plain(rule: str, *texts: str) -> dict[str, tuple[str, str]]:
    """Return texts, as they are written, each with how an error shows it and the rule."""
    return {f"'{text}'": (f'"{text}"', rule) for text in texts}


#: Values of the right type.
VALUES: dict[str, dict[str, tuple[str, str]]] = {
    "priority": {
        "-1": ("-1", "an integer from 0 to 1000"),
        "1001": ("1001", "an integer from 0 to 1000"),
        "9223372036854775807": ("9223372036854775807", "an integer from 0 to 1000"),
        "-9223372036854775808": ("-9223372036854775808", "an integer from 0 to 1000"),
        "+1001": ("1001", "an integer from 0 to 1000"),
    },
    "name": {
        '"toy2"': ('"toy2"', '"toy", the name of its file'),
        '"tox"': ('"tox"', '"toy", the name of its file'),
        '"Toy"': ('"Toy"', NAME_RULE),
        '""': ('""', NAME_RULE),
    },
    "platform": {text: (shown, NAME_RULE) for text, shown in TEXTS.items()},
    "aliases": {
        "['a b']": ("an array", "names of [a-z0-9_], 1 to 32 characters"),
        "['a', '']": ("an array", "names of [a-z0-9_], 1 to 32 characters"),
        "['a', 1]": ("an array", "an array of strings"),
    },
    "library[0].path": {
        **plain(PATH_RULE, "", "..", "../toy.so", "{root}/lib/../lib/toy.so", "lib/..", "*.so"),
        **plain(PATH_RULE, "/lib/to?.so", "/lib/to[y].so"),
        "'lib\\toy.so'": ('"lib\\\\toy.so"', PATH_RULE),
    },
    "library[0].target": {
        **plain(TARGET_RULE, "", "linux", "linux-", "-x86_64", "linux-x86_64-", "Linux-x86_64"),
        **plain(TARGET_RULE, "linux-x86_64-glibc2", "linux-x86_64-2.28", "linux-x86_64-glibc-2.28"),
        **plain(TARGET_RULE, "linux-x86_64-glibc+2.28", "linux-x86_64-glibc 2.28"),
        **plain(TARGET_RULE, f"linux-x86_64-{'l' * 32}", "linux-x86_64-musl-musl"),
        **plain(TARGET_RULE, "linux-x86_64-glibc2.28.1", "linux-x86_64-glibc2.28-a"),
        **plain(TARGET_RULE, "linux-x86_64-glibc2.12345", "linux x86_64"),
        "'linux-x86_64-glibc2.\u0662'": ('"linux-x86_64-glibc2.\\u0662"', TARGET_RULE),
    },
    "library[0].sha256": plain(DIGITS_RULE, "a" * 63, "a" * 65, "A" * 64, "g" * 64, ""),
    "preload[0].libraries": {
        "[]": ("an array", "file names such as 'libcudart.so.13'"),
        "['a', 'b/c']": ("an array", "file names such as 'libcudart.so.13'"),
        "['/a']": ("an array", "file names such as 'libcudart.so.13'"),
        "['a', 2]": ("an array", "an array of strings"),
    },
    "preload[0].folder": plain(PATH_RULE, "", "../lib", "/opt/*"),
    "probe.kind": {
        **plain("one of always, files, kfd, pci", "usb", ""),
        "'files'": ("", "at least one path"),
        "'pci'": ("", "a PCI vendor such as '0x1ae0'"),
    },
    "probe.files": {
        "['dev/a']": ("an array", "absolute paths"),
        "['/a', '']": ("an array", "absolute paths"),
    },
    "environment.A.when": plain("one of always, present, absent", "never"),
    "environment.A": {"{ when = 'always' }": ("", "a string")},
    "options.a.type": plain("one of string, int64, int64_list, float, bool, unknown", "int", ""),
    "options.a.default": {
        "'1'": ('"1"', "a value of type int64"),
        "true": ("true", "a value of type int64"),
        "1.0": ("a float", "a value of type int64"),
        "[1]": ("an array", "a value of type int64"),
        "{}": ("a table", "a value of type int64"),
    },
    **{
        key: {
            **plain(VERSION_RULE, "", "81", "0.", ".81", "0.81.0", "0.x", " 0.81", "-0.81"),
            **plain(VERSION_RULE, "0.1234567890"),
            "'\u0660.\u0668'": ('"\\u0660.\\u0668"', VERSION_RULE),
        }
        for key in ("api.minimum", "api.maximum", "options.a.since")
    },
}
#: Where a value makes another key wrong.
ELSEWHERE = {
    "probe.kind = 'files'": "probe.files",
    "probe.kind = 'pci'": "probe.vendor",
    "environment.A = { when = 'always' }": "environment.A.value",
}
#: Defaults that are of another type than the option, or beyond its limits.
DEFAULTS: dict[str, tuple[str, str]] = {
    "type = 'string'\ndefault = 1": ("1", "a value of type string"),
    "type = 'bool'\ndefault = 1": ("1", "a value of type bool"),
    "type = 'bool'\ndefault = 'true'": ('"true"', "a value of type bool"),
    "type = 'float'\ndefault = '1'": ('"1"', "a value of type float"),
    "type = 'float'\ndefault = true": ("true", "a value of type float"),
    "type = 'int64_list'\ndefault = 1": ("1", "a value of type int64_list"),
    "type = 'int64_list'\ndefault = 'a'": ('"a"', "a value of type int64_list"),
    "type = 'int64_list'\ndefault = [1, 2.0]": ("an array", "a value of type int64_list"),
    "type = 'int64_list'\ndefault = [true]": ("an array", "a value of type int64_list"),
    "type = 'int64_list'\ndefault = {}": ("a table", "a value of type int64_list"),
    "type = 'unknown'\ndefault = {}": ("a table", "a value of type unknown"),
    "type = 'unknown'\ndefault = ['a']": ("an array", "a value of type unknown"),
    "type = 'int64'\nminimum = 2\ndefault = 1": ("1", "a value of type int64, within its limits"),
    "type = 'int64'\nmaximum = 2\ndefault = 3": ("3", "a value of type int64, within its limits"),
    "type = 'int64_list'\nmaximum = 2\ndefault = [1, 3]": (
        "an array",
        "a value of type int64_list, within its limits",
    ),
}
#: Tables of keys that are right, each after the library.
RIGHT: dict[str, str] = {
    "all that an option has": """[options.a]
type = 'int64'
default = 2
minimum = 2
maximum = 2
since = '0.81'
doc = 'b'
""",
    "options of each type": """[options]
a = { type = 'string', default = '' }
b = { type = 'int64' }
c = { type = 'int64_list', default = [1, -1] }
d = { type = 'float', default = 1 }
e = { type = 'bool', default = false }
f = { type = 'unknown', default = [1] }
g = { type = 'float', default = 1e9 }
""",
    "versions": "[api]\nminimum = '0.057'\nmaximum = '999999999.999999999'",
    "an empty table of each": "[options]\n[environment]\n[api]\n[probe]",
    "unknown tables": "[later]\na = 1\n[[much_later]]\nb = 2\n[later.still]\nc = [3]",
    "unknown keys in tables": """a = 1
[[preload]]
libraries = ['x.so']
folder = 'x'
a = 1
[probe]
a = 1
driver = { a = 1 }
[options.b]
type = 'bool'
a = 1
[api]
a = 1
[environment]
A = { value = '', when = 'absent', a = 1 }
""",
    "a preload of a package": "[[preload]]\nmodule = 'nvidia.cu13'\nlibraries = 7",
    "an odd library of a package": "[[library]]\nmodule = 'a-b'\npath = 7",
    "a target without a version": "[[library]]\npath = 'b'\ntarget = 'linux-x86_64-musl'",
    "several plugins, which only packages have": "[[plugin]]\nname = 1",
}


def key_cases() -> Iterator[Case]:
    for name, (text, reason) in WRONG.items():
        yield refused(f"key: {name}", text, reason)
    for (right, expected), keys in TYPES.items():
        for key, (value, shown) in product(keys.split(), SHOWN.items()):
            if value not in right and (right != "[]" or value != "[1]"):
                reason = f"{key}: found {shown}, expected {expected}"
                yield refused(f"type: {key} = {value}", put(key, value), reason)
    for key, values in VALUES.items():
        for value, (shown, expected) in values.items():
            name = f"{key} = {value}"
            at = ELSEWHERE.get(name, key)
            reason = f"{at}: {f'found {shown}' if shown else 'not there'}, expected {expected}"
            yield refused(f"value: {name[:70]}, {len(name)}", put(key, value), reason)
    for text, (shown, expected) in DEFAULTS.items():
        reason = f"options.a.default: found {shown}, expected {expected}"
        yield refused(f"default: {text}".replace("\n", ", "), f"{TOY}[options.a]\n{text}", reason)
    for name, text in RIGHT.items():
        yield one(f"right: {name}", f"{TOY}{text}\n", USABLE)
    for priority in (0, 1, 1000):
        yield one(
            f"priority {priority}", put("priority", str(priority)), usable("toy", "toy", priority)
        )
    yield one("platform of 32", put("platform", f"'{'p' * 32}'"), usable("toy", "p" * 32))
    yield one("aliases", put("aliases", "['gpu', 'a_1']"), USABLE)
    yield one("description", put("description", "'😀 \" \\'"), USABLE)
    yield one("a digest", put("library[0].sha256", f"'{'0' * 64}'"), USABLE)
