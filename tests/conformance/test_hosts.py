"""What happens to each host on a plugin that lacks functions: profiles, `check` and `lint`."""

from __future__ import annotations

import json
import subprocess
import zipfile

import finished
import pytest

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.kit.conformance import host
from pjrt_hub.kit.conformance.host import hosts, newest
from pjrt_hub.kit.conformance.verdict import Report, Verdict
from pjrt_hub.running.capi import table
from pjrt_hub.running.interpose import layers

#: JAX aborts at its first jit without this function.
ASSIGNMENT = "PJRT_LoadedExecutable_GetDeviceAssignment"
#: The check for the newest release of JAX.
JAX = "hosts.jax_0_12_0_1"


def jax():
    return next(host for host in newest() if host.name == "JAX")


@pytest.fixture
def without(clean_env):
    """`without("PJRT_X", "check", "cpu")` runs a command on plugins without the function PJRT_X."""

    def run(names: str, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        layer = {"PJRT_HUB_LAYERS": "without", "PJRT_HUB_WITHOUT": names}
        layer["LD_PRELOAD"] = str(layers.preload_path())
        own = {**clean_env, **(layer if names else {}), **env}
        return finished.cli(*words, seconds=200, env=own)

    return run


@pytest.mark.parametrize("each", hosts(), ids=lambda each: each.title)
def test_a_profile_speaks_of_functions_and_steps_that_there_are(each):
    for lacks in (each.null, each.unimplemented):
        assert set(lacks) <= set(table.FUNCTIONS)
        for found in lacks.values():
            assert bool(found.at) != bool(found.fails)
            assert {*found.fails, *filter(None, [found.at])} <= set(each.needs)
    assert set(each.asked_of) <= host.TRAITS
    assert {name for names in each.asked_of.values() for name in names} <= set(table.FUNCTIONS)
    assert each.learned.split()[0] in ("measured", "read")


def test_what_becomes_of_a_host_without_functions():
    """Only the first of several ends is reported, but every step that fails is."""
    jax_ = jax()
    assert jax_.word(jax_.without()) == jax_.word(jax_.without(["PJRT_Event_Await"])) == "runs"
    found = jax_.without([ASSIGNMENT, "PJRT_Buffer_Delete"], ["PJRT_Memory_Kind"])
    assert jax_.word(found) == "aborts at devices (SIGABRT)"
    assert found.functions == ("PJRT_Memory_Kind",)
    found = jax_.without([], ["PJRT_Buffer_CopyToMemory", "PJRT_Executable_GetCostAnalysis"])
    assert jax_.word(found) == "runs without copy, analyse"
    assert jax_.word(jax_.without([], ["PJRT_Client_Create"])) == "refuses at devices"


@pytest.mark.parametrize(
    ("trait", "name"), [(trait, name) for trait, names in jax().asked_of.items() for name in names]
)
def test_jax_calls_it_only_of_plugins_with_a_trait(trait, name):
    jax_ = jax()
    assert set(jax_.asked_of) == host.TRAITS
    assert jax_.word(jax_.without([name])).startswith("aborts")
    assert jax_.word(jax_.without([name], [], host.TRAITS - {trait})) == "runs"
    assert jax_.word(jax_.without([], [name], host.TRAITS - {trait})) == "runs"


def test_check_says_what_runs(without, row):
    ended = without("", "check", "cpu", "--area", "hosts", "--json")
    assert ended.returncode == 0, ended.stderr
    report = Report.from_json(ended.stdout)
    assert {each.verdict for each in report.results} == {Verdict.PASS}
    lack = " without analyse: PJRT_Executable_GetCostAnalysis is UNIMPLEMENTED"
    counts = row.api_version < ApiVersion(0, 106)
    assert report[JAX].notes == (f"{jax().title} runs{'' if counts else lack}",)


def test_check_says_who_aborts(without, tmp_path):
    page = tmp_path / "report.html"
    names = f"{ASSIGNMENT},PJRT_Executable_Serialize:null"
    ended = without(names, "check", "cpu", "--area", "hosts", "--json", "--html", page)
    assert ended.returncode == 0, ended.stderr  # nothing registers a bare library with JAX
    report = Report.from_json(ended.stdout)
    told = f"{jax().title} aborts at jit (SIGABRT): {ASSIGNMENT} is UNIMPLEMENTED"
    assert report[JAX].verdict is Verdict.UNSUPPORTED
    assert report[JAX].notes == (told,)
    (ours,) = report["hosts.pjrt_hub"].notes
    assert "runs without serialize: PJRT_Executable_Serialize is NULL" in ours
    assert told in page.read_text()


def test_what_registers_with_jax_must_not_end_it(without, library, tmp_path):
    named = ("--name", "mychip", "--version", "1.0", "--license", "MIT")
    packed = without("", "pack", library, *named, "--output", tmp_path)
    assert packed.returncode == 0, packed.stderr
    (wheel,) = tmp_path.glob("*.whl")
    linted = without(ASSIGNMENT, "lint", wheel, "--json")
    found = [each for each in json.loads(linted.stdout) if each["rule"] == "PLG409"]
    assert linted.returncode == 1
    assert f"aborts at jit (SIGABRT): {ASSIGNMENT} is UNIMPLEMENTED" in found[0]["text"]
    assert "PLG409" not in without("", "lint", wheel, "--json").stdout
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    installed = next(site.rglob("*.so"))
    words = ("check", installed, "--area", "hosts", "--json")
    ended = without(ASSIGNMENT, *words, PYTHONPATH=str(site))
    assert ended.returncode == 1
    assert Report.from_json(ended.stdout)[JAX].verdict is Verdict.FAIL
