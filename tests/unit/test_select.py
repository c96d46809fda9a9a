"""The choice of a plugin: the winner, errors instead of guesses, and a reason for each loser."""

from pathlib import Path
from typing import Any

import pytest
import wheels
from hypothesis import given, settings
from hypothesis import strategies as st
from trees import Site, world

from pjrt_hub.base.abi import ApiVersion, Verdict
from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import AmbiguousPluginError, PluginNotFoundError
from pjrt_hub.finding.contract.manifest import Manifest
from pjrt_hub.finding.discovery.select import Choice, Request, choose, explain
from pjrt_hub.finding.discovery.source import Candidate
from pjrt_hub.finding.discovery.survey import Survey, survey
from pjrt_hub.finding.store.catalog import Catalog, shipped_registry

MEMBERS = wheels.contents(100)
ROW = wheels.pin(wheels.build(MEMBERS), MEMBERS)
ABSENT = Verdict(False, "no such device")


def plugin(name: str, platform: str, priority: int, place: str = "", **changed: Any) -> Candidate:
    """A candidate that is installed in `place`, or a registry row if `place` is empty."""
    of_row = {"host": HostTag.current(), "api_version": changed.pop("api", ApiVersion(0, 116))}
    artifact = ROW._replace(plugin=name, platform=platform, package=f"{name}-wheel", **of_row)
    values: dict[str, Any] = {
        "manifest": Manifest(name, platform, "", ("gpu",) if platform == "cuda" else (), priority),
        "source": "namespace" if place else "catalogued",
        "origins": (f"{name} at {place}",),
        "distribution": f"{name}-wheel",
        "version": "1",
        "library_path": Path("/", place, "a.so") if place else None,
        "artifact": None if place else artifact,
        **changed,
    }
    return Candidate(**values)


def pick(request: str | None, *candidates: Candidate, **options: bool) -> Choice:
    found = Survey(candidates, (), tuple(each.manifest for each in candidates))
    return choose(found, Request.read(request, {}), **options)


CPU = plugin("cpu", "cpu", 0)
CPU_HERE = plugin("cpu", "cpu", 0, "cpu")
CUDA13 = plugin("cuda13", "cuda", 500)
CUDA13_HERE = plugin("cuda13", "cuda", 500, "cuda13")
CUDA13_CACHED = plugin("cuda13", "cuda", 500, "cache", source="cached")
CUDA13_IDLE = plugin("cuda13", "cuda", 500, "cuda13", hardware=ABSENT)
CUDA12_HERE = plugin("cuda12", "cuda", 500, "cuda12")


JAXS = "$JAX_PLATFORMS"


def test_who_asks_first_is_heard():
    env = {"PJRT_HUB_PLATFORMS": "b, c,,b", "JAX_PLATFORMS": "d"}
    assert Request.read("a", env) == Request(("a",), "the argument")
    assert Request.read(None, env) == Request(("b", "c"), "$PJRT_HUB_PLATFORMS")
    assert Request.read(None, {**env, "PJRT_HUB_PLATFORMS": ""}) == Request(("d",), JAXS)
    both = {"JAX_PLATFORMS": "cuda, cpu"}
    assert Request.read(None, both) == Request(("cuda", " cpu"), JAXS)
    assert Request.read(None, {}) is None


@pytest.mark.parametrize(
    ("candidates", "winner"),
    [
        ([CPU], CPU),
        ([CUDA13, CPU], CUDA13),
        ([CUDA13_IDLE, CPU], CPU),
        ([CUDA13_HERE, CPU_HERE], CUDA13_HERE),
        # An installed plugin that works wins over a download.
        ([CUDA13, CPU_HERE], CPU_HERE),
        ([CUDA13_CACHED, CPU_HERE], CUDA13_CACHED),
    ],
)
def test_priority_among_what_is_present(candidates: list[Candidate], winner: Candidate):
    choice = pick(None, *candidates)
    assert choice.candidate is winner
    losers = {each.name for each in candidates if each is not winner}
    assert {each.name for each in choice.rejections} == losers
    assert all(each.reason for each in choice.rejections)


def test_what_is_here_comes_before_a_download_and_the_newest_download_first():
    """Yet an accelerator's plugin is fetched even if the CPU's is cached."""
    cached = plugin("cpu", "cpu", 0, "cache", source="cached")
    assert pick(None, CUDA13, cached).candidate is CUDA13
    assert pick(None, CUDA13, cached, offline=True).candidate is cached
    assert pick("cuda", CUDA12_HERE, CUDA13).candidate is CUDA12_HERE
    old = plugin("cuda12", "cuda", 500, api=ApiVersion(0, 58))
    assert pick("cuda", old, CUDA13).candidate is CUDA13


@pytest.mark.parametrize(
    ("request_", "winner"),
    [
        ("cpu", CPU_HERE),
        ("cuda13", CUDA13),
        ("cuda", CUDA13),
        ("gpu", CUDA13),
        ("tt,gpu,cpu", CUDA13),
        ("cuda13-wheel:cuda13", CUDA13),
        ("CUDA13_wheel:cuda13", CUDA13),
    ],
)
def test_requests(request_: str, winner: Candidate):
    choice = pick(request_, CUDA13, CPU_HERE)
    assert choice.candidate is winner
    assert choice.reason.startswith("the argument asks for")


def test_the_first_available_of_a_list_wins_and_a_name_alone_may_lack_its_hardware():
    choice = pick("tpu,cuda,cpu", CUDA13_IDLE, CPU)
    assert choice.candidate is CPU
    assert {each.name: each.reason for each in choice.rejections} == {
        "tpu": "no plugin, platform or alias has that name",
        "cuda13": "its hardware is absent: no such device",
    }
    for word in ("cuda", "cuda13"):
        choice = pick(word, CUDA13_IDLE, CPU)
        assert choice.candidate.name == "cuda13"
        assert choice.candidate.notes == ("its hardware is absent: no such device",)
    with pytest.raises(PluginNotFoundError, match="its hardware is absent"):
        pick("gpu", CUDA13_IDLE, CPU)


def test_hardware_that_is_absent_is_no_reason_to_download():
    idle = plugin("cuda13", "cuda", 500, hardware=ABSENT)
    assert pick("cuda", idle, CPU).candidate.name == "cuda13"  # it can compile ahead of time
    for word in ("cuda", "cuda13"):
        with pytest.raises(PluginNotFoundError, match="cuda13: its hardware is absent") as caught:
            pick(word, idle, CPU, to_run=True)
        hint = "nothing was fetched; `pjrt-hub fetch cuda13` fetches it"
        assert caught.value.hint.startswith(hint)
    # An installed plugin costs nothing to try.
    assert pick("cuda", CUDA13_IDLE, CPU, to_run=True).candidate.name == "cuda13"


def test_hardware_that_nobody_can_tell_is_neither_present_nor_absent():
    untold = plugin("npu", "npu", 400, "npu", hardware=Verdict(None, "nobody said"))
    choice = pick(None, untold, CPU_HERE)
    assert choice.candidate is untold
    assert choice.reason == "its hardware may be here and its priority, 400, is the highest"
    assert "hardware unknown (nobody said)" in explain(choice)
    assert pick("npu,cpu", untold, CPU_HERE).candidate is untold


def test_what_failed_is_passed_over_with_its_reason():
    found = Survey((CUDA13_HERE, CPU_HERE), ())
    choice = choose(found.without(CUDA13_HERE, "it failed: no driver"))
    assert choice.candidate is CPU_HERE
    told = [(each.name, each.reason) for each in choice.rejections]
    assert told == [("cuda13", "it failed: no driver")]
    # A row that was fetched in the meantime is still the same plugin.
    fetched = CUDA13._replace(source="cached", library_path=Path("/cache/a.so"))
    assert choose(Survey((fetched, CPU_HERE), ()).without(CUDA13, "")).candidate is CPU_HERE


def test_whether_it_was_asked_for_alone_and_what_nothing_has():
    assert pick("cuda", CUDA13_HERE, CPU_HERE).was_asked_for_alone
    assert not pick("cuda,cpu", CUDA13_HERE, CPU_HERE).was_asked_for_alone
    assert not pick(None, CUDA13_HERE, CPU_HERE).was_asked_for_alone
    (unknown,) = pick("cdua,cpu", CUDA13_HERE, CPU_HERE).unknown
    assert (unknown.name, unknown.hint) == ("cdua", "did you mean 'cuda' or 'cuda13'?")


def test_a_file_in_this_folder_is_named_by_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("plugin.bin").touch()
    with pytest.raises(PluginNotFoundError) as caught:
        pick("plugin.bin", CPU)
    assert caught.value.hint == "did you mean './plugin.bin'?"


def test_a_plugin_with_a_malformed_manifest_says_so_when_it_is_asked_for(tmp_path: Path):
    site = Site(tmp_path / "site")
    site.plugin("toy-plugin", "toy", more="colour = 3")
    site.plugin("tot-plugin", "tot")
    with pytest.raises(PluginNotFoundError, match="colour: unknown key") as caught:
        choose(survey(world(tmp_path, site)), Request.read("toy", {}))
    assert "did you mean" not in caught.value.hint


def test_an_unknown_name_is_an_error_that_helps():
    with pytest.raises(PluginNotFoundError) as caught:
        pick("cdua13", CUDA13, CPU)
    text = str(caught.value)
    assert text.startswith("no plugin for 'cdua13', which the argument asks for\n")
    assert "known: cpu, cuda13; also by platform or alias: cuda, gpu" in text
    assert "did you mean 'cuda13'" in caught.value.hint
    assert {each.name for each in caught.value.rejections} == {"cdua13", "cpu", "cuda13"}  # type: ignore[attr-defined]
    with pytest.raises(PluginNotFoundError, match=r"no plugin for 'cud\\u0430'"):
        pick("cud\u0430", CUDA13)  # look-alikes are escaped


@settings(max_examples=200)
@given(st.text(max_size=20))
def test_nothing_is_chosen_by_likeness(word: str):
    known = {"cuda13", "cuda", "gpu", "cpu"}
    if not known & {part.strip() for part in word.split(",")} and word.strip(", \t\n\r\x0b\x0c"):
        if ":" in word or Request.read(word, {}) is None:
            return
        with pytest.raises(PluginNotFoundError):
            pick(word, CUDA13, CPU)


@pytest.mark.parametrize("host", ["linux-x86_64-musl", "linux-riscv64-glibc2.39", "windows-x86_64"])
def test_where_no_plugin_can_be_used_none_is_said_to_be_installable(tmp_path: Path, host: str):
    with pytest.raises(PluginNotFoundError, match="no plugin can be used") as caught:
        pick(None, CUDA13_IDLE)
    assert "no such device" in str(caught.value)
    assert "PJRT_HUB_PLUGIN_PATH" in caught.value.hint
    there = {"host": HostTag.parse(host), "catalog": Catalog([shipped_registry()])}
    with pytest.raises(PluginNotFoundError, match="no plugin can be used") as caught:
        choose(survey(world(tmp_path, **there, first_party=True)))
    assert "pip install" not in caught.value.hint


def test_a_tie_names_both_and_how_to_choose():
    for request in (None, "cuda", "gpu"):
        with pytest.raises(AmbiguousPluginError) as caught:
            pick(request, CUDA12_HERE, CUDA13_HERE)
        text = str(caught.value)
        for part in ("cuda12-wheel 1", "cuda13-wheel 1", "/cuda12/a.so", "/cuda13/a.so"):
            assert part in text
        assert caught.value.hint == 'name one: client("cuda12") or client("cuda13")'
    assert pick("cuda13", CUDA12_HERE, CUDA13_HERE).candidate is CUDA13_HERE
    twin = plugin("mine", "cuda", 500, "cuda13")  # two names of one library are no tie
    assert pick(None, CUDA13_HERE, twin).candidate is CUDA13_HERE


@pytest.mark.parametrize("intruder_first", [True, False])
def test_a_name_that_two_distributions_claim(tmp_path: Path, intruder_first: bool):
    honest, intruder = Site(tmp_path / "honest"), Site(tmp_path / "intruder")
    library = honest.vendor("jax-cuda13-pjrt", "jax_plugins.xla_cuda13", "xla_cuda_plugin.so")
    other = intruder.plugin("free-gpu", "cuda13", "cuda", priority=900, version="6.6")
    sites = (intruder, honest) if intruder_first else (honest, intruder)
    found = survey(world(tmp_path, *sites, first_party=True))
    # The intruder claims that its hardware is always present, which must not make it win.
    for request in (None, "cuda13", "cuda"):
        with pytest.raises(AmbiguousPluginError) as caught:
            choose(found, Request.read(request, {}))
        for part in ("jax-cuda13-pjrt 1.0", "free-gpu", str(library), str(other)):
            assert part in str(caught.value)
    spelled = Request.read("jax-cuda13-pjrt:cuda13", {})
    assert choose(found, spelled).candidate.library_path == library
    assert choose(found, Request.read("free_gpu:cuda13", {})).candidate.library_path == other


def test_a_manifest_cannot_take_over_the_library_of_another(tmp_path: Path):
    honest, intruder = Site(tmp_path / "honest"), Site(tmp_path / "intruder")
    honest.vendor("jax-cuda13-pjrt", "jax_plugins.xla_cuda13", "xla_cuda_plugin.so")
    more = '[[library]]\ndistribution = "jax-cuda13-pjrt"\npath = "jax_plugins/*/*_plugin.so"'
    intruder.plugin("free-gpu", "cuda13", "cuda", more=more).unlink()
    found = survey(world(tmp_path, intruder, honest, first_party=True))
    (cuda,) = found.candidates
    assert cuda.described_by == "pjrt-hub"
    assert any("describes the same library" in each.reason for each in found.rejections)


def test_the_environment_replaces_what_is_installed_and_may_not_contradict_itself(tmp_path: Path):
    site = Site(tmp_path / "site")
    site.plugin("toy-plugin", "toy")
    a, b = (Site(tmp_path / name).plugin(name, name) for name in "ab")
    env = {"PJRT_HUB_PLUGIN_PATH": f"toy={a}"}
    choice = choose(survey(world(tmp_path, site, env=env)), Request.read("toy", {}))
    assert choice.candidate.library_path == a
    assert any(each.reason.startswith("shadowed by toy") for each in choice.rejections)
    env = {"PJRT_NAMES_AND_LIBRARY_PATHS": f"toy:{a},toy:{b}"}
    with pytest.raises(AmbiguousPluginError, match="2 plugins of equal standing"):
        choose(survey(world(tmp_path, env=env)))


def test_the_explanation_says_everything_once():
    text = explain(pick("cuda", CUDA13_IDLE, CPU))
    assert text.splitlines() == [
        "chosen: cuda13: platform cuda, priority 500, cuda13-wheel 1, /cuda13/a.so, "
        "hardware absent (no such device) [cuda13 at cuda13]",
        "  because the argument asks for 'cuda'",
        "  note: its hardware is absent: no such device",
        "cpu: it was not asked for [cpu at ]",
    ]


@pytest.mark.parametrize(
    ("call", "priority"),
    [
        ('xb.register_plugin("two", priority=500, library_path=path)', 500),
        ("xla_bridge.register_plugin(NAME, priority=500)", 500),
        ('register_plugin("two", priority=100)', 100),
        ('register_plugin("two", priority=PRIORITY)', 400),
        ("register_plugin(", 400),
        ("", 400),
    ],
)
@pytest.mark.parametrize("way", ["entry point", "namespace"])
def test_a_vendor_s_priority_is_what_its_package_registers_in_jax(
    tmp_path: Path, call: str, priority: int, way: str
):
    site = Site(tmp_path / "site")
    for name in ("one", "two"):
        site.vendor(f"jax-{name}", f"jax_plugins.{name}", f"pjrt_plugin_{name}.so")
    site.write("jax_plugins/two/__init__.py", f"def initialize():\n    {call or 'pass'}\n")
    if way == "namespace":
        (tmp_path / "site" / "jax_two-1.0.dist-info" / "entry_points.txt").unlink()
    found = survey(world(tmp_path, site))
    assert {each.name: each.priority for each in found.candidates} == {"one": 400, "two": priority}
    if priority == 400:
        with pytest.raises(AmbiguousPluginError, match="there are 2 plugins of equal standing\n"):
            choose(found)
    else:
        assert choose(found).candidate.name == ("two" if priority > 400 else "one")
