"""The search for missing functions finds every function whose lack affects a host."""

from __future__ import annotations

import json
import os
from pathlib import Path

import finished
import pytest
from children import command

from pjrt_hub.kit.conformance.host import hosts
from pjrt_hub.kit.conformance.missing_functions import find_missing
from pjrt_hub.kit.conformance.subject import Subject

#: Without these no error can be read, not even UNIMPLEMENTED. Other checks fail without them.
UNTOLD = {"PJRT_Error_Destroy", "PJRT_Error_Message", "PJRT_Error_GetCode"}


def look_without(library, names):
    """Look at the plugin without each function, behind the layer `without`, in forks."""
    for name in names:
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0, name
            continue
        if name:
            os.environ.update(PJRT_HUB_LAYERS="without", PJRT_HUB_WITHOUT=name)
        found = find_missing(Subject(Path(library)))
        print(json.dumps([name, found.null, found.unimplemented, found.asked]), flush=True)
        os._exit(0)


@pytest.fixture(scope="module")
def looked(library):
    """Function left out -> what is NULL, what is UNIMPLEMENTED, whether functions were called."""
    matters = {name for host in hosts() for name in host.unimplemented} - UNTOLD
    words = command(look_without, library, ["", *sorted(matters)], prepared=False)
    ended = finished.run(*words, check=True)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(rows) == 1 + len(matters)
    return {name: (null, unimplemented, asked) for name, null, unimplemented, asked in rows}


def test_every_function_that_matters_to_a_host_is_seen_to_be_unimplemented(looked):
    whole = set(looked[""][1])
    unseen = {name for name, (_, found, _) in looked.items() if name and name not in found}
    assert unseen == set()
    for name, (null, found, asked) in looked.items():
        assert null == looked[""][0], name
        if asked:  # functions that need this one are not reported with it
            assert set(found) <= whole | {name}, name


@pytest.mark.slow
@pytest.mark.night
def test_a_plugin_that_makes_no_client_is_asked_for_nothing_else(looked):
    assert looked["PJRT_Client_Create"][1:] == (["PJRT_Client_Create"], False)
