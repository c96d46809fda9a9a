"""The loader in C opens plugins: which one, when not, once in a process, after what it needs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from manifest_trees import FOREIGN
from programs import compile_program

COUNTS = r'ON_INITIALIZE=printf("initialized\n"), fflush(stdout)'
HINT = "\n\nhint: "


class Plugins:
    """A folder of manifests, and a program that opens what they describe."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.folder = folder / "m"
        self.folder.mkdir(mode=0o755)
        self.program = program

    def add(self, name: str, library: Path | str, more: str = "", platform: str = "toy") -> Path:
        """Write a manifest; `more` is what follows the platform."""
        head = f'schema = 1\nname = "{name}"\nplatform = "{platform}"\n'
        manifest = self.folder / f"{name}.toml"
        top, _, tables = more.partition("\n\n")
        manifest.write_text(f'{head}{top}\n[[library]]\npath = "{library}"\n{tables}\n')
        manifest.chmod(0o644)
        return manifest

    def open(self, *words: str, program: Path | None = None, **env: str) -> str:
        """Run the program with these words; its output."""
        variables = {"PJRT_PLUGIN_MANIFESTS": str(self.folder), **env}
        command = [str(program or self.program), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=variables)
        assert done.returncode == 0, done.stdout + done.stderr
        assert program or not done.stderr  # the CPU plugin logs what a client is made with
        return done.stdout

    def refusal(self, *words: str, **env: str) -> tuple[str, str]:
        """The same where it prints one error; the error and its hint."""
        told = self.open(*words, **env).removesuffix("\n")
        assert told.startswith("error: ")
        error, _, hint = told.removeprefix("error: ").partition(HINT)
        return error, hint


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # What a plugin leaves when the process ends is no leak of the loader's.
    return compile_program(tmp_path_factory.mktemp("open"), "open.c", "-O2")


@pytest.fixture
def plugins(tmp_path: Path, program: Path) -> Plugins:
    return Plugins(tmp_path, program)


def test_the_cpu_plugin_is_opened(plugins: Plugins, library: Path, row):
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    option = "[options]\ncpu_device_count = { type = 'int64', default = 3 }"
    more = f"description = 'XLA'\n\nsha256 = '{digest}'\n{option}"
    manifest = plugins.add("xla_cpu", library, more, platform="cpu")
    told = plugins.open("cpu", "xla_cpu", "verify", "", "merge").splitlines()
    opened = f"opened xla_cpu, platform cpu, API {row.api_version}"
    where = [str(manifest), str(library), "needs no special hardware"]
    again = [f"{opened}, again", *where]
    assert told == [opened, *where, *again, *again, "cpu_device_count (1) = 3"]


def test_a_client_has_the_options(plugins: Plugins, library: Path, header_folder: Path, tmp_path):
    text = "[options.cpu_device_count]\ntype = 'int64'\ndefault = 3\nminimum = 1"
    plugins.add("xla_cpu", library, f"\n\n{text}", platform="cpu")
    client = compile_program(tmp_path, "client.c", f"-I{header_folder}")
    assert plugins.open("cpu", program=client) == "3 devices\n"
    assert plugins.open("cpu", "2", program=client) == "2 devices\n"


def test_a_library_is_opened_by_its_path(plugins: Plugins, stub):
    told = plugins.open(str(stub()), "merge", "anything=int64:-5", "b=string:").splitlines()
    assert told == [
        *("opened , platform , API 0.117", "", str(stub()), "its path was given"),
        *("anything (1) = -5", 'b (0) = ""'),
    ]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["b"], "b, platform a"),  # a name counts before a platform
        (["a"], "c, platform a"),  # the highest priority
        (["d"], "a_third, platform d"),
        (["gpu"], "a_third, platform d"),  # the alias of two
        ([""], "a_third, platform d"),
        (["absent"], "absent, platform a"),  # it may serve to compile
        (["e"], "absent_e, platform e"),
    ],
)
def test_a_name_counts_before_a_platform_and_that_before_an_alias(plugins, stub, words, found):
    nowhere = "\n[probe]\nkind = 'files'\nfiles = ['/nowhere']"
    plugins.add("a_third", stub(), "priority = 600\naliases = ['gpu', 'a', 'b']", platform="d")
    plugins.add("b", stub(), "priority = 5", platform="a")
    plugins.add("c", stub(), "priority = 500\naliases = ['gpu', 'd']", platform="a")
    plugins.add("absent", stub(), f"priority = 1000\n{nowhere}", platform="a")
    plugins.add("absent_e", stub(), f"priority = 1000\n{nowhere}", platform="e")
    assert plugins.open(*words).splitlines()[0] == f"opened {found}, API 0.117"


def test_an_alias_of_what_has_no_hardware_opens_nothing(plugins: Plugins, stub):
    nowhere = "aliases = ['gpu']\n\n[probe]\nkind = 'files'\nfiles = ['/nowhere']"
    manifest = plugins.add("toy", stub(), nowhere)
    for word in ("gpu", ""):
        error, hint = plugins.refusal(word, HOME="/nowhere/home")
        assert error == (
            "no plugin can be opened on this machine\n"
            f"toy, platform toy, priority 400: {manifest}: none of /nowhere exists"
        )
        folders = f"{plugins.folder}, /nowhere/home/.config/pjrt/plugins, /etc/pjrt/plugins"
        assert hint == f"install a manifest in one of {folders}"


def test_an_unknown_name_is_an_error_that_lists_all(plugins: Plugins, stub):
    toy, other = plugins.add("toy", stub()), plugins.add("other", "/nowhere/x.so")
    error, _ = plugins.refusal("tóy")
    assert error == (
        'no plugin, platform or alias is named "t\\u00F3y"\n'
        f"{other}: /nowhere/x.so is not a file\n"
        f"toy, platform toy, priority 400: {toy}: needs no special hardware"
    )


@pytest.mark.parametrize("word", ["", "toy", "alias"])
def test_the_hint_is_about_what_keeps_a_plugin_from_being_opened(plugins: Plugins, stub, word):
    install = f"install a manifest in one of {plugins.folder}, /etc/pjrt/plugins"
    manifest = plugins.add("one", stub(), "aliases = ['alias']")
    two = plugins.add("two", "/nowhere/x.so", platform="other")
    mend = "install the plugin where this process may read it, or remove its manifest"
    hint = plugins.refusal(word or "other", PJRT_HUB_SELECT="two")[1]
    assert hint == f"for {manifest}, change that variable"
    assert plugins.refusal("other")[1] == f"for {two}, {mend}"
    manifest.unlink()
    assert plugins.refusal(word)[1] == (install if word else f"for {two}, {mend}")
    two.write_text("damaged")
    told = "correct that file; docs/spec/manifest.md of pjrt-hub has its form"
    assert plugins.refusal(word)[1] == f"for {two}, {told}"
    plugins.folder.chmod(0o777)
    told = "give it to root or yourself, and `chmod go-w` it"
    assert plugins.refusal(word)[1] == f"for {plugins.folder}, {told}"


def test_an_equal_priority_is_an_error_that_names_both(plugins: Plugins, stub):
    one, two = plugins.add("one", stub()), plugins.add("two", stub())
    plugins.add("three", stub(), "priority = 399")
    error, hint = plugins.refusal("toy")
    assert error == f"two plugins have the priority 400: one ({one}) and two ({two})"
    assert hint == "open one by its name, one or two"


@pytest.mark.parametrize(
    ("text", "env", "reason", "hint"),
    [
        ("path = 7", {}, "library[0].path: found 7, expected a string", "correct that file"),
        ("path = 'x'", {}, "{folder}/x is not a file", "install the plugin"),
        ("", {"PJRT_HUB_DISABLE": "toy"}, "PJRT_HUB_DISABLE names it", "change that variable"),
    ],
)
def test_nobody_gets_another_plugin_in_the_place_of_one_that_is_refused(
    plugins: Plugins, stub, text, env, reason, hint
):
    plugins.add("other", stub(), "aliases = ['toy']")
    manifest = plugins.add("toy", stub())
    if text:
        manifest.write_text(re.sub("path = .*", text, manifest.read_text()))
    error, told = plugins.refusal("toy", **env)
    reason = reason.replace("{folder}", str(plugins.folder))
    assert error == f"the plugin toy cannot be opened: {manifest}: {reason}"
    assert told.startswith(hint)


def test_the_listing_has_all_that_there_is(plugins: Plugins, stub, tmp_path):
    toy = plugins.add("toy", stub(), "description = 'a toy'\npriority = 7")
    bad = plugins.add("bad", stub(), "priority = 1001")
    told = plugins.open("list", PJRT_PLUGIN_MANIFESTS=f"x:{plugins.folder}", HOME=str(tmp_path))
    wrong = "priority: found 1001, expected an integer from 0 to 1000"
    right = "needs no special hardware"
    assert [line.split(" | ")[:9] for line in told.splitlines()] == [
        ["refused", "", "", "", "0", "unknown", "x", "", "it is not an absolute path"],
        ["refused", "bad", "", "", "0", "unknown", str(bad), "", wrong],
        ["usable", "toy", "toy", "a toy", "7", "present", str(toy), str(stub()), right],
    ]
    assert [line.split(" | ")[9] for line in told.splitlines()] == [
        "write the whole path into the variable",
        "correct that file; docs/spec/manifest.md of pjrt-hub has its form",
        "",
    ]


def test_another_major_version_is_refused_and_no_other(plugins: Plugins, stub):
    plugins.add("toy", stub())
    error, hint = plugins.refusal("api=1.0", "toy")
    assert error == (
        f"{stub()} cannot be used: it has PJRT API 0.117, the program is written for 1.0"
    )
    assert hint == "install a release of the plugin that fits, or of the program"
    for version in ("0.0", "0.40", "0.117", "0.999"):
        assert plugins.open(f"api={version}", "toy").startswith("opened toy,")
    later = stub("MAJOR=1", "MINOR=2")
    assert "it has PJRT API 1.2, the program is written for 0.0" in plugins.refusal(str(later))[0]
    assert plugins.open("api=1.0", str(later)).startswith("opened , platform , API 1.2\n")


def test_the_version_is_checked_where_the_plugin_is_open_too(plugins: Plugins, stub):
    told = plugins.open(str(stub()), "api=1.0", str(stub())).splitlines()
    assert told[4] == f"error: {stub()} cannot be used: it has PJRT API 0.117, " + (
        "the program is written for 1.0"
    )


@pytest.mark.parametrize(
    ("api", "told"),
    [
        ("minimum = '0.117'\nmaximum = '0.117'", ""),
        ("maximum = '1.0'", ""),
        ("minimum = '0.118'", "0.118 and newer"),
        ("maximum = '0.116'", "0.116 and older"),
        ("minimum = '1.0'", "1.0 and newer"),
    ],
)
def test_a_manifest_of_other_versions_is_refused(plugins: Plugins, stub, api, told):
    manifest = plugins.add("toy", stub(), f"\n\n[api]\n{api}")
    if not told:
        assert plugins.open("toy").startswith("opened toy")
        return
    error, hint = plugins.refusal("toy")
    assert error == f"{stub()} cannot be used: it has PJRT API 0.117, {manifest} is for {told}"
    assert hint == "install the plugin again, with the manifest of that release"


def test_a_plugin_is_initialized_once_also_from_threads(plugins: Plugins, stub):
    library = stub(COUNTS)
    plugins.add("toy", library)
    plugins.add("same", library)
    told = plugins.open("threads=16", "toy", "same", str(library), "toy").splitlines()
    assert told.count("initialized") == 1
    assert told[:2] == ["initialized", "16 of 16 threads have the same plugin"]
    assert [line for line in told if line.startswith("opened")] == [
        "opened same, platform toy, API 0.117",
        "opened , platform , API 0.117",
        "opened toy, platform toy, API 0.117",
    ]


def test_a_plugin_that_cannot_be_initialized_is_not_asked_again(plugins: Plugins, stub):
    library = stub(r'ON_INITIALIZE=printf("asked\n"); fflush(stdout); return fail(14, "no device")')
    plugins.add("toy", library)
    told = plugins.open("toy", "toy", str(library))
    error = f"error: PJRT_Plugin_Initialize of {library} failed: no device\n"
    assert told == f"asked\n{error * 3}"


@pytest.mark.parametrize(
    "failure",
    [
        'return fail(12, "not implemented")',  # it has nothing to set up
        'return fail(3, "it is already initialized")',  # by another part of the process
    ],
)
def test_a_plugin_that_needs_no_initialization_is_opened(plugins: Plugins, stub, failure):
    assert plugins.open(str(stub(f"ON_INITIALIZE={failure}"))).startswith("opened ,")


@pytest.mark.parametrize(
    ("word", "told"),
    [("empty", "it does not say why"), ("huge", "x" * 4095), ("codeless", "codeless")],
)
def test_odd_errors_of_plugins_are_told(plugins: Plugins, stub, word, told):
    library = stub(f'ON_INITIALIZE=return fail(13, "{word}")')
    error, _ = plugins.refusal(str(library))
    assert error == f"PJRT_Plugin_Initialize of {library} failed: {told}"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("no_symbol", "{} is not a PJRT plugin: it exports no GetPjrtApi"),
        ("null_table", "{} is not a usable PJRT plugin: GetPjrtApi returns a table of 0 bytes"),
        ("short_table", "{} is not a usable PJRT plugin: GetPjrtApi returns a table of 16 bytes"),
    ],
)
def test_what_is_no_plugin_is_refused(plugins: Plugins, faults, fault, told):
    library = faults(fault)
    error, hint = plugins.refusal(str(library))
    assert error == told.format(library)
    assert hint


def test_what_is_no_library_is_refused(plugins: Plugins, tmp_path):
    text = tmp_path / "text.so"
    text.write_text("no library")
    os.mkfifo(tmp_path / "fifo.so")
    error, hint = plugins.refusal(str(text))
    assert error.startswith(f"the library {text} cannot be loaded: {text}: ")
    assert hint == "check that it is a library for this machine, and install what it lacks"
    for path, why in (
        (tmp_path / "fifo.so", "it is not a file"),
        (tmp_path, "it is not a file"),
        (tmp_path / "x.so", "cannot be read: No such file or directory"),
    ):
        error, hint = plugins.refusal(str(path))
        assert error == f"the library {path}: {why}"
        assert hint == "give the path of what is there, and let this process read it"
    error, hint = plugins.refusal("sub/toy.so")
    assert (error, hint) == (
        "sub/toy.so is not an absolute path",
        "give the whole path of the library",
    )


def test_a_library_that_others_may_write_to_is_refused(plugins: Plugins, stub, tmp_path):
    library = Path(shutil.copy(stub(), tmp_path))
    library.chmod(0o777)
    error, hint = plugins.refusal(str(library))
    assert error == f"the library {library}: everybody may write to it"
    assert hint == "give it to root or yourself, and `chmod go-w` it"
    library.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(library, FOREIGN, 0)
        assert plugins.refusal(str(library))[0].endswith(f"it belongs to user {FOREIGN}")


def test_the_sha256_is_compared_where_that_is_asked_for(plugins: Plugins, stub):
    digest = hashlib.sha256(stub().read_bytes()).hexdigest()
    manifest = plugins.add("toy", stub(), f"\n\nsha256 = '{digest}'")
    assert plugins.open("verify", "toy").startswith("opened toy")
    wrong = digest.translate(str.maketrans("0123", "1234"))
    manifest.write_text(manifest.read_text().replace(digest, wrong))
    assert plugins.open("toy").startswith("opened toy")
    error, _ = plugins.refusal("verify", "toy")
    assert error == f"the library {stub()} has the sha256 {digest}, its manifest expects {wrong}"
    told = plugins.open("toy", "verify", "toy")
    assert told.splitlines()[-3] == f"error: {error}"


CONSTRUCTOR = r"""
#include <stdio.h>
#include <stdlib.h>
int value_of_NAME = 7;
__attribute__((constructor)) static void begin(void) {
  const char *mode = getenv("TOY_MODE");
  printf("NAME after %s\n", mode == NULL ? "nothing" : mode), fflush(stdout);
}
"""


def test_variables_and_preloads_come_first(plugins: Plugins, stub, tmp_path):
    for name in ("first", "second"):
        source = tmp_path / f"{name}.c"
        source.write_text(CONSTRUCTOR.replace("NAME", name))
        command = ["cc", "-shared", "-fPIC", "-o", tmp_path / f"{name}.so", source]
        subprocess.run(command, check=True, timeout=60)
    load = (
        r'ON_LOAD=extern int value_of_first; printf("plugin %d\n", value_of_first), fflush(stdout)'
    )
    plugins.add(
        "toy",
        stub(load),
        "\n\n[[preload]]\nlibraries = ['second.so', 'absent.so', 'first.so']\n"
        f"folder = '{tmp_path}'\n[environment]\nTOY_MODE = 'set'\nGIVEN = 'manifest'\n"
        "EMPTY = 'full'\nLATE = { value = '1', when = 'absent' }",
    )
    words = ("print=TOY_MODE", "toy", "print=TOY_MODE", "print=GIVEN", "print=EMPTY", "print=LATE")
    told = plugins.open(*words, GIVEN="user", EMPTY="").splitlines()
    assert told[:4] == ["unset", "second after set", "first after set", "plugin 7"]
    assert told[8:] == ["set", "user", "", "unset"]


def test_a_preload_that_cannot_be_loaded_is_an_error(plugins: Plugins, stub):
    (plugins.folder / "a.so").write_text("no library")
    plugins.add("toy", stub(), "\n\n[[preload]]\nlibraries = ['a.so']\nfolder = '.'")
    error, _ = plugins.refusal("toy")
    path = plugins.folder / "a.so"
    assert error.startswith(f"the library {path} cannot be loaded: {path}: ")


OPTIONS = """

[options]
a = { type = "int64", default = 1, minimum = 1, maximum = 9 }
b = { type = "string", default = "é" }
c = { type = "int64_list", default = [1, -2], minimum = -2 }
d = { type = "float", default = 0.1 }
e = { type = "bool", default = true }
f = { type = "unknown", default = 1e3 }
g = { type = "string" }
old = { type = "int64", default = 5, since = "0.117" }
new = { type = "int64", default = 5, since = "0.118" }
"""
DEFAULTS = {
    "a": "a (1) = 1",
    "b": 'b (2) = "é"',
    "c": "c (2) = [1,-2]",
    "d": "d (1) = 0.100000001f",
    "e": "e (1) = true",
    "f": "f (1) = 1000f",
    "old": "old (1) = 5",
}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("a=int64:9", "a (1) = 9"),
        ("b=string:", 'b (0) = ""'),
        ("c=int64_list:", "c (0) = []"),
        ("c=int64_list:4,5,6", "c (3) = [4,5,6]"),
        ("d=float:2.5", "d (1) = 2.5f"),
        ("d=int64:2", "d (1) = 2f"),
        ("e=bool:0", "e (1) = false"),
        ("f=string:text", 'f (4) = "text"'),
        ("f=int64_list:1", "f (1) = [1]"),
        ("g=string:more", 'g (4) = "more"'),
    ],
)
def test_a_programs_options_come_before_the_defaults(plugins: Plugins, stub, given, told):
    plugins.add("toy", stub(), OPTIONS)
    found = plugins.open("toy", "merge", given).splitlines()[4:]
    rest = [line for name, line in DEFAULTS.items() if name != given[0]]
    assert found == [told, *rest]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("a=string:1", 'the option "a" of toy is of type int64, found a value of type string'),
        ("a=float:1", 'the option "a" of toy is of type int64, found a value of type float'),
        ("a=bool:1", 'the option "a" of toy is of type int64, found a value of type bool'),
        ("b=int64:1", 'the option "b" of toy is of type string, found a value of type int64'),
        ("d=bool:1", 'the option "d" of toy is of type float, found a value of type bool'),
        ("c=int64:1", 'the option "c" of toy is of type int64_list, found a value of type int64'),
        ("a=int64:0", 'the option "a" of toy is 0; it must be from 1 to 9'),
        ("a=int64:10", 'the option "a" of toy is 10; it must be from 1 to 9'),
        ("c=int64_list:1,-3", f'the option "c" of toy is -3; it must be from -2 to {2**63 - 1}'),
        ("h=int64:1", 'toy has no create option "h"; it has a, b, c, d, e, f, g, new, old'),
        ("new=int64:1", 'the option "new" is of PJRT API 0.118, toy has 0.117'),
        ("a=odd:1", 'the option "a" is of type 9, which is none'),
        ("a=int64:1 a=int64:2", 'the option "a" is given twice'),
    ],
)
def test_a_value_that_could_abort_the_process_is_refused(plugins: Plugins, stub, given, told):
    plugins.add("toy", stub(), OPTIONS)
    lines = plugins.open("toy", "merge", *given.split()).splitlines()
    assert lines[4] == f"error: {told}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a setuid program")
def test_an_elevated_process_reads_no_variable(plugins: Plugins, stub, tmp_path, program):
    plugins.add("toy", stub())
    wrapped = Path(shutil.copy(program, tmp_path / "elevated"))
    wrapped.chmod(0o4755)
    for folder in {tmp_path, *tmp_path.parents, *program.parents, *stub().parents}:
        if folder != Path(tempfile.gettempdir()) and folder.is_relative_to(tempfile.gettempdir()):
            folder.chmod(folder.stat().st_mode | 0o055)
    env = {"PJRT_PLUGIN_MANIFESTS": str(plugins.folder), "HOME": str(tmp_path)}
    nobody = (
        "import os, sys; os.setgid(65534); os.setuid(65534); os.execv(sys.argv[1], sys.argv[1:])"
    )

    def run(path: Path) -> str:
        command = [sys.executable, "-c", nobody, str(path), "toy"]
        how = {"env": env, "capture_output": True, "text": True, "timeout": 60}
        return subprocess.run(command, check=True, **how).stdout

    assert run(program).startswith("opened toy,")
    told = run(wrapped)
    if told.startswith("opened toy,"):
        pytest.skip("setuid programs do not work in the temporary folder")
    assert told == (
        'error: no plugin, platform or alias is named "toy"\n\n'
        "hint: install a manifest in one of /etc/pjrt/plugins\n"
    )
