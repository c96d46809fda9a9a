"""Plugins in others' packages: they are registered, chosen, initialized, and reported if they fail.

A failing one is passed over with a reason if another one would do; otherwise it is an error.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pjrt_hub
from pjrt_hub import errors

MANIFEST = """schema = 1
name = "{0}"
platform = "{0}"
priority = 10

[[library]]
path = "lib{0}.so"
"""


def put(library: Path, name: str, folder: Path) -> None:
    """Put a library and its manifest into a package."""
    folder.mkdir(parents=True)
    shutil.copy(library, folder / f"lib{name}.so")
    (folder / "pjrt_plugin.toml").write_text(MANIFEST.format(name))


def adding(site: Path) -> dict[str, str]:
    """The environment variables that add a folder of packages."""
    return {"PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def ask(name=None, options=None, times=1, through=False):
    """Print the plugin of each client, or the error; warnings are logged."""
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    for _ in range(times):
        try:
            loaded = pjrt_hub.load(name).client if through else None
            with loaded() if loaded else pjrt_hub.client(name, options=options) as client:
                print(client.plugin.name)
        except errors.PjrtHubError as exc:
            print(type(exc).__name__, exc.message)


@pytest.fixture
def install(stub, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Install a plugin that works and a vendor's with these macros; give the variables for both."""

    def installed(*macros: str) -> dict[str, str]:
        site = tmp_path / "site"
        put(stub(), "plain", site / "pjrt_plugins" / "plain")
        vendors = site / "jax_plugins" / "npu"
        vendors.mkdir(parents=True)
        shutil.copy(stub(*macros), vendors / "pjrt_plugin_npu.so")
        return adding(site)

    return installed


REFUSES = 'ON_CREATE=return fail(9, "no device of ours")'
ABORTS = "ON_INITIALIZE=abort()"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (None, {}),
        ("npu,plain", {}),
        (None, {"PJRT_HUB_PLATFORMS": "npu,plain"}),
        (None, {"JAX_PLATFORMS": "npu,plain"}),
    ],
)
@pytest.mark.parametrize(
    ("macro", "said"),
    [
        (REFUSES, "PJRT_Client_Create: no device of ours"),
        (ABORTS, "died of SIGABRT in PJRT_Plugin_Initialize"),
    ],
)
@pytest.mark.slow
def test_the_next_one_is_used(install, run, stub, name, words, macro, said) -> None:
    ended = run(stub(), ask, name, env={**install(macro), **words})
    assert (ended.stdout.strip(), ended.returncode) == ("plain", 0)
    (warning, *_) = [line for line in ended.stderr.splitlines() if "passed over" in line]
    assert warning.startswith("WARNING npu (")
    assert " is passed over for plain: " in warning
    assert said in ended.stderr


@pytest.mark.parametrize(
    ("macro", "name", "options", "words", "said"),
    [
        (REFUSES, "npu", {}, {}, "FailedPreconditionError"),
        (REFUSES, None, {}, {"PJRT_HUB_PLATFORMS": "npu"}, "FailedPreconditionError"),
        (REFUSES, "npu,absent", {}, {}, "FailedPreconditionError"),
        (REFUSES.replace("9", "3"), None, {"colour": "red"}, {}, "InvalidArgumentError"),
    ],
    ids=["a name", "a variable", "beside an absent one", "a wrong option of the caller's"],
)
def test_what_was_asked_for_alone_is_an_error(
    install, run, stub, macro, name, options, words, said
) -> None:
    ended = run(stub(), ask, name, options, env={**install(macro), **words})
    assert ended.stdout.strip() == f"{said} PJRT_Client_Create: no device of ours"
    assert ended.returncode == 0


def test_what_a_variable_sets_is_tried_in_another_process_first(run, stub, tmp_path: Path) -> None:
    folder = tmp_path / "pjrt_plugins" / "plain"
    put(stub("ON_CREATE=if (args->num_options) abort()"), "plain", folder)
    with (folder / "pjrt_plugin.toml").open("a") as manifest:
        manifest.write('[options.count]\ntype = "int64"\nvariables = ["PLAIN_COUNT"]\n')
    ended = run(stub(), ask, "plain", env={**adding(tmp_path), "PLAIN_COUNT": "2"})
    assert ended.stdout.startswith("PluginCrashedError ")
    assert ended.returncode == 0


def test_what_a_variable_sets_wrong_is_an_error(run, stub, tmp_path: Path) -> None:
    put(stub(), "plain", tmp_path / "pjrt_plugins" / "plain")
    folder = tmp_path / "pjrt_plugins" / "npu"
    put(stub(REFUSES.replace("9", "3")), "npu", folder)
    manifest = folder / "pjrt_plugin.toml"
    option = '[options.count]\ntype = "int64"\nvariables = ["NPU_COUNT"]\n'
    manifest.write_text(manifest.read_text().replace("= 10", "= 20") + option)
    for count, answer in (
        ("", "plain"),
        ("2", "InvalidArgumentError PJRT_Client_Create: no device of ours"),
    ):
        ended = run(stub(), ask, None, env={**adding(tmp_path), "NPU_COUNT": count})
        assert ended.stdout.strip() == answer


def test_loading_passes_over_what_cannot_be_loaded(install, run, stub) -> None:
    ended = run(stub(), ask, "npu,plain", None, 1, True, env=install(ABORTS))
    assert ended.stdout.strip() == "plain"
    assert "passed over" in ended.stderr


def look():
    for each in pjrt_hub.plugins():
        if each.name in ("npu", "plain"):
            print(each.name, each.hardware.ok, each.verdict.ok, each.chosen)
    path = pjrt_hub.plugins("npu")[0].library_path
    print([step.detail for step in pjrt_hub.diagnose(path).steps if step.what == "hardware"])


def test_hardware_that_nobody_described_is_unknown(install, run, stub) -> None:
    ended = run(stub(), look, env=install())
    assert ended.stdout.splitlines() == [
        "npu None True True",
        "plain True True False",
        "['unknown: no pjrt_plugin.toml says what hardware it needs']",
    ]


def test_a_name_that_nothing_has_is_told_once(install, run, stub) -> None:
    here = install()
    for variable in ("PJRT_HUB_PLATFORMS", "JAX_PLATFORMS"):
        ended = run(stub(), ask, None, None, 2, env={**here, variable: "plian,plain"})
        assert ended.stdout.split() == ["plain", "plain"]
        (warning,) = ended.stderr.splitlines()
        assert warning == (
            "WARNING plian: no plugin, platform or alias has that name "
            f"(did you mean 'plain'?) [${variable}]"
        )


def test_a_variable_that_nothing_reads_is_told_once(install, run, stub) -> None:
    own = {"PJRT_HUB_PLATFORM": "npu", "PJRT_HUB_CACHE_DIR": "/nowhere", "PJRT_HUB_XYZZY": ""}
    ended = run(stub(), ask, "plain", None, 2, env={**install(), **own})
    assert ended.stdout.split() == ["plain", "plain"]
    assert ended.stderr.splitlines() == [
        "WARNING nothing reads the variable PJRT_HUB_CACHE_DIR: did you mean 'PJRT_HUB_CACHE'?",
        "WARNING nothing reads the variable PJRT_HUB_PLATFORM: did you mean 'PJRT_HUB_PLATFORMS'?",
        "WARNING nothing reads the variable PJRT_HUB_XYZZY",
    ]


def load_twice():
    try:
        pjrt_hub.load("toy")
        pjrt_hub.load("toy")
    except errors.PjrtHubError as exc:
        print(type(exc).__name__, exc)
    print(os.environ.get("TOY"), "toy_plugin" in sys.modules)


@pytest.fixture
def install_toy(stub, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Install a package with the stub; give the environment variables that add its folder."""

    def installed(code: str | None, *groups: str, package: str = "toy_plugin") -> dict[str, str]:
        site = tmp_path / "site"
        folder = site / package
        put(stub(), "toy", folder)
        if code is not None:
            (folder / "__init__.py").write_text(code)
        info = site / "toy_plugin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-plugin\nVersion: 1.0\n")
        points = "".join(f"[{group}]\ntoy = toy_plugin\n" for group in groups)
        (info / "entry_points.txt").write_text(points)
        return adding(site)

    return installed


COUNTING = """
import os
assert "JAX_REGISTERED" not in os.environ
def initialize():
    os.environ["TOY"] = os.environ.get("TOY", "") + "x"
"""


@pytest.mark.parametrize(
    ("code", "groups", "package", "said"),
    [
        (COUNTING, ["pjrt_plugins"], "toy_plugin", "x True"),
        (COUNTING, [], "pjrt_plugins/toy", "x False"),
        ("", ["pjrt_plugins"], "toy_plugin", "None True"),
        (None, ["pjrt_plugins"], "toy_plugin", "None False"),
        # This module is for JAX as well: its initialize() would register the plugin with JAX.
        (COUNTING, ["pjrt_plugins", "jax_plugins"], "toy_plugin", "None False"),
    ],
)
def test_a_package_is_initialized_once_it_is_chosen(
    install_toy, run, stub, code, groups, package, said
) -> None:
    ended = run(stub(), load_twice, env=install_toy(code, *groups, package=package))
    assert (ended.stdout.strip(), ended.stderr, ended.returncode) == (said, "", 0)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def initialize(): raise OSError(5, 'no device')", "OSError: [Errno 5] no device"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("def initialize(x): pass", "TypeError: initialize() missing 1 required"),
        ("def", "SyntaxError: invalid syntax"),
    ],
)
def test_what_a_package_raises_is_told(install_toy, run, stub, code: str, said: str) -> None:
    ended = run(stub(), load_twice, env=install_toy(code, "pjrt_plugins"))
    assert ended.stdout.startswith("PluginLoadError the plugin toy cannot be initialized: toy_pl")
    assert said in ended.stdout
    assert "hint: `python -c 'import toy_plugin; toy_plugin.initialize()'`" in ended.stdout
    assert (ended.stderr, ended.returncode) == ("", 0)


def diagnose():
    steps = {step.what: step.ok for step in pjrt_hub.diagnose("toy").steps}
    assert list(steps)[-2:] == ["library", "initialize"]
    assert (steps["library"], steps["initialize"]) == (True, False)


def test_doctor_initializes_too(install_toy, check, stub) -> None:
    check(stub(), diagnose, env=install_toy("def initialize(): 1 / 0", "pjrt_plugins"))
