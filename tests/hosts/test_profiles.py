"""The profiles of hosts, measured again word for word, on the releases that are installed here."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace

import measurement
import pytest

import pjrt_hub
from pjrt_hub.kit.conformance.host import hosts, parse

#: Host -> the module that walks it, and its distribution.
HOSTS = {
    "JAX": ("jax_walk", "jax"),
    "pypjrt": ("pypjrt_walk", "pypjrt"),
    "TorchTPU": ("torch_tpu_walk", "torch_tpu"),
    "torch_xla": ("torch_xla_walk", "torch_xla"),
}
#: A host calls these as it collects garbage, in whatever step that happens: runs may differ by the
#: step, and never by the signal.
WHILE_COLLECTED = {"PJRT_Executable_Destroy", "PJRT_LoadedExecutable_Destroy"}


#: Functions that are called only for events that are not ready, and steps that may have none.
WHILE_PENDING = {"PJRT_Event_Error": {"copy", "split"}, "PJRT_Event_OnReady": {"copy", "split"}}


def told(host):
    """A profile without the parts that differ from run to run."""
    rows = {"null": host.null, "unimplemented": host.unimplemented}
    lacks = {
        form: {name: settled(name, found) for name, found in row.items()}
        for form, row in rows.items()
    }
    return replace(host, **lacks)


def settled(name, found):
    fails = tuple(step for step in found.fails if step not in WHILE_PENDING.get(name, ()))
    at = "any" if found.at and name in WHILE_COLLECTED else found.at
    return replace(found, at=at, fails=fails)


def differences(found, kept):
    """Function -> what was found and what the profile says, if they differ."""
    rows = ((found.null, kept.null, "null"), (found.unimplemented, kept.unimplemented, ""))
    return {
        (name, form): (new.get(name), old.get(name))
        for new, old, form in rows
        for name in new.keys() | old.keys()
        if new.get(name) != old.get(name)
    }


@pytest.fixture
def library(clean_env, monkeypatch, name):
    """The build of the CPU plugin that the profile was measured on."""
    monkeypatch.setenv("PJRT_HUB_CACHE", clean_env["PJRT_HUB_CACHE"])
    module, _ = HOSTS[name]
    build = measurement.BUILDS.get(module.removesuffix("_walk"), measurement.PLUGIN)
    return pjrt_hub.fetch(build).resolve()


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.timeout(1800)
def test_the_profile_is_what_is_measured(library, name):
    """`python tools/hosts jax` writes JAX's again; a release without a profile needs one."""
    module, distribution = HOSTS[name]
    release = importlib.metadata.version(distribution)
    (kept,) = (host for host in hosts() if (host.name, host.release) == (name, release))
    _, names = measurement.functions(library)
    asked = [form.format(each) for form in measurement.FORMS.values() for each in names]
    assert len(asked) == (276 if name == "TorchTPU" else 236)
    walked = measurement.walk(module, library, asked)
    assert walked.runs[""].status == 0
    found = parse(measurement.text(name, walked, names, kept.learned))
    assert differences(told(found), told(kept)) == {}
    assert told(found) == told(kept)
