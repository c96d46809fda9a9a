"""Real CUDA and TPU plugins without hardware: what can be checked is checked, the rest skipped."""

from __future__ import annotations

import pytest

from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Verdict
from pjrt_hub.running.capi import ambient

#: Areas in which at least some checks need no device.
AREAS = ("plugin", "extensions", "topology", "compile", "analysis", "serialization", "events")


@pytest.fixture(scope="module", params=["cuda12", "cuda13", "tpu"])
def report(request):
    return conformance.run(request.param, areas=AREAS, names=["client.*", "ops.add.f32"])


def test_there_is_no_defect(report):
    expected = []
    if report.plugin.name == "tpu" and (filtered := _what_a_filter_changes()):
        text = f"expected the process as it was, found {'; '.join(filtered)}"
        expected = [("plugin.process", text)]
    assert [(each.name, each.text) for each in report.defects] == expected


def _what_a_filter_changes():
    """Return what libtpu's filter of system calls changes; a container may have set one before."""
    here = ambient.settings()
    filtered = {"no_new_privs": "1", "the mode of seccomp": "2"}
    return [f"{what} is {value}" for what, value in filtered.items() if here[what] != value]


def test_what_needs_a_device_is_skipped_with_the_plugins_words(report):
    said = {"cuda12": "No visible GPU devices", "cuda13": "No visible GPU devices"}
    skipped = [each for each in report.results if each.verdict is Verdict.SKIP]
    assert {"events.ready", "ops.add.f32", "client.platform"} <= {each.name for each in skipped}
    if report.plugin.name == "cuda12":
        created = report["events.created_fails"]
        assert created.verdict is Verdict.UNSUPPORTED
        assert created.text == "it came with PJRT API 0.89, the plugin has 0.58"
    for name in ("events.ready", "ops.add.f32"):
        assert report[name].text.startswith("no device: PJRT_Client_Create: ")
        assert said.get(report.plugin.name, "No jellyfish device found") in report[name].text


def test_the_plugin_and_a_machine_that_is_not_here_are_checked(report):
    version = {"cuda12": "0.58", "cuda13": "0.116", "tpu": "0.117"}[report.plugin.name]
    target = {"cuda12": "H100", "cuda13": "B200", "tpu": "v5e:2x2"}[report.plugin.name]
    assert (report.plugin.api_version, report.plugin.target) == (version, target)
    assert (report.plugin.platform, report.plugin.devices) == ("", ())
    for name in ("plugin.loads", "plugin.table_size", "extensions.chain", "topology.serialize"):
        assert report[name].verdict is Verdict.PASS, report[name].text
