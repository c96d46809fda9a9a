"""What `lint` and the search for options say of the vendors' own libraries, without hardware."""

from pathlib import Path

import pytest

import pjrt_hub
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.kit import authoring
from pjrt_hub.kit.authoring import identity

#: Plugin -> the rules that its library breaks; each was looked at by hand. The newest build of
#: the CPU plugin has no table of local symbols, and so keeps PLG111.
FOUND = {
    "cpu": {"PLG104"},
    "cuda12": {"PLG104", "PLG110", "PLG111"},
    "cuda13": {"PLG104", "PLG111"},
    "tpu": {"PLG104", "PLG111"},
}


@pytest.fixture(params=sorted(FOUND))
def vendor(request) -> tuple[str, Path]:
    """The name and the library of a plugin; the test is skipped if it is not installed."""
    for each in pjrt_hub.plugins():
        if each.name == request.param and each.library_path is not None:
            return each.name, each.library_path
    pytest.skip(f"{request.param} is not installed")


def test_the_library_is_linted(vendor):
    name, path = vendor
    assert {finding.rule.code for finding in authoring.lint(path, probes=False)} == FOUND[name]


def test_our_manifest_lists_the_options_that_it_takes(vendor):
    """They are found by passing wrong types to names that lie near known ones in the library."""
    name, path = vendor
    found = identity.identify(path)
    version = ApiVersion.parse(found.api_version)
    [described] = [each for each in identity.first_party() if each.name == name]
    listed = {
        option.name: option.type
        for option in described.options
        if option.since is None or option.since <= version
    }
    assert {option.name: option.type for option in found.options} == listed
