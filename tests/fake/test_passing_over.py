"""Plugins that fail: passed over with a reason where another one would do, an error where none."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import pjrt_hub
from pjrt_hub import errors

MANIFEST = """schema = 1
name = "plain"
platform = "plain"
priority = 10

[[library]]
path = "libplain.so"
"""


def ask(name=None, options=None, times=1, through=False):
    """Print what a client was made of, and what went before."""
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    for _ in range(times):
        try:
            made = (
                pjrt_hub.load(name).client() if through else pjrt_hub.client(name, options=options)
            )
            with made as client:
                print(client.plugin.name)
        except errors.PjrtHubError as exc:
            print(type(exc).__name__, exc.message)


@pytest.fixture
def install(stub, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Installs a plugin that works, and a vendor's of these macros; gives the variables."""

    def installed(*macros: str) -> dict[str, str]:
        site = tmp_path / "site"
        for package, library, macro in (
            ("pjrt_plugins/plain", "libplain.so", ()),
            ("jax_plugins/npu", "pjrt_plugin_npu.so", macros),
        ):
            (site / package).mkdir(parents=True)
            shutil.copy(stub(*macro), site / package / library)
        (site / "pjrt_plugins" / "plain" / "pjrt_plugin.toml").write_text(MANIFEST)
        return {"PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}

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
    ("name", "words"),
    [("npu", {}), (None, {"PJRT_HUB_PLATFORMS": "npu"}), ("npu,absent", {})],
)
def test_what_was_asked_for_alone_is_an_error(install, run, stub, name, words) -> None:
    ended = run(stub(), ask, name, env={**install(REFUSES), **words})
    said = "FailedPreconditionError PJRT_Client_Create: no device of ours"
    assert (ended.stdout.strip(), ended.returncode) == (said, 0)


def test_a_wrong_option_is_the_callers_error(install, run, stub) -> None:
    refuses = install('ON_CREATE=return fail(3, "no option colour")')
    ended = run(stub(), ask, None, {"colour": "red"}, env=refuses)
    assert ended.stdout.strip() == "InvalidArgumentError PJRT_Client_Create: no option colour"


def test_what_a_variable_sets_is_tried_in_another_process_first(run, stub, tmp_path: Path) -> None:
    folder = tmp_path / "site" / "pjrt_plugins" / "plain"
    folder.mkdir(parents=True)
    shutil.copy(stub("ON_CREATE=if (args->num_options) abort()"), folder / "libplain.so")
    option = '[options.count]\ntype = "int64"\nvariables = ["PLAIN_COUNT"]\n'
    (folder / "pjrt_plugin.toml").write_text(MANIFEST + option)
    site = f"{tmp_path / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    ended = run(stub(), ask, "plain", env={"PYTHONPATH": site, "PLAIN_COUNT": "2"})
    assert ended.stdout.startswith("PluginCrashedError ")
    assert ended.returncode == 0


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
