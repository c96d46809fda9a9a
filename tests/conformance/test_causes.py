"""One mistake of a plugin is one defect: what it hides is told with it, and is no other one."""

from __future__ import annotations

import re

import pytest

from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Result, Verdict
from pjrt_hub.kit.conformance.cause import Causes
from pjrt_hub.kit.conformance.check import checks

#: What one function does -> the check that tells, and how.
MISTAKES = {
    ("PJRT_Client_Create", "ABORTS"): ("basics.client", "crash", "SIGABRT in PJRT_Client_Create"),
    ("PJRT_Client_Create", "HANGS"): ("basics.client", "timeout", "s in PJRT_Client_Create"),
    ("PJRT_Device_GetDescription", "ABORTS"): ("basics.description", "crash", "GetDescription"),
    ("PJRT_Client_BufferFromHostBuffer", "FAILS"): ("basics.put", "fail", "INTERNAL: "),
    ("PJRT_Buffer_ToHostBuffer", "ABORTS"): ("basics.read", "crash", "Buffer_ToHostBuffer"),
    ("PJRT_Client_Compile", "FAILS"): ("basics.compile", "fail", "broken on purpose"),
    ("PJRT_Client_Compile", "ABORTS"): ("basics.compile", "crash", "in PJRT_Client_Compile"),
    ("PJRT_LoadedExecutable_Execute", "FAILS"): ("basics.execute", "fail", "broken on purpose"),
    ("PJRT_LoadedExecutable_Execute", "HANGS"): ("basics.execute", "timeout", "Executable_Execute"),
    ("PJRT_Event_Await", "HANGS"): ("basics.put", "timeout", "in PJRT_Event_Await"),
    ("PJRT_Buffer_Destroy", "ABORTS"): ("basics.put", "crash", "in PJRT_Buffer_Destroy"),
    ("PJRT_Client_CreateViewOfDeviceBuffer", "ABORTS"): ("external.", "crash", "ViewOfDevice"),
}
#: That the real plugin has in the areas that are checked here.
REAL = {"execute.argument_of_another_type", "execute.deleted_executable"}
CHECKED = ("execute", "events", "external")
ADDS = "ops.add.f32*"


@pytest.mark.parametrize(("function", "answer"), MISTAKES)
def test_one_mistake_is_one_defect_and_comes_first(answering, function, answer):
    cause, verdict, text = MISTAKES[function, answer]
    seconds = 3 if answer == "HANGS" else None
    report = conformance.run(
        answering(function, answer), areas=CHECKED, names=[ADDS], seconds=seconds
    )
    first, *others = report.defects
    assert first.name.startswith(cause), [(each.name, each.text) for each in report.defects]
    assert (first.verdict, first.function) == (verdict, function)
    assert text in first.text
    assert [(each.name, each.text) for each in others if each.name not in REAL] == []
    hidden = report.hidden(first.name)
    assert len(hidden) > 1
    for each in hidden:
        assert each.verdict is Verdict.SKIP or each.verdict is first.verdict
        assert each.verdict is not Verdict.SKIP or first.name in each.text


def test_slow_is_not_wrong(answering):
    """Each of these checks makes two clients or more, or waits for a process that does."""
    path = answering("PJRT_Client_Create", "SLOW", seconds=8)
    names = ["basics.client", "client.create_again", "client.two_clients", "events.ready"]
    report = conformance.run(path, names=names, jobs=2)
    assert {each.name: (each.verdict, each.text) for each in report.results} == dict.fromkeys(
        names, (Verdict.PASS, "")
    )
    (note,) = report["basics.client"].notes
    assert int(re.fullmatch("PJRT_Client_Create took ([0-9]+) s", note)[1]) >= 8


def test_what_does_not_return_is_one_finding():
    late = {"verdict": Verdict.TIMEOUT, "function": "PJRT_Buffer_Delete"}
    results = {name: Result(name, "", **late) for name in ("buffers.delete", "donation.donated")}
    assert learnt(results) == {"buffers.delete": "", "donation.donated": "buffers.delete"}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("it died", "it died"), ("Check failed: a > 0", "Check failed: b > 0")),
        (("found 1", "found 2"), ("", "")),
    ],
)
def test_other_words_are_another_cause(texts, words):
    names = ("buffers.delete", "donation.donated")
    results = {
        name: Result(name, "", Verdict.CRASH, text, words=said, function="PJRT_Buffer_Delete")
        for name, text, said in zip(names, texts, words, strict=True)
    }
    assert set(learnt(results).values()) == {""}


def learnt(results: dict[str, Result]) -> dict[str, str]:
    """The cause of each result, when they come in this order."""
    causes, known = Causes(), {each.name: each for each in checks()}
    return {name: causes.learn(known[name], each).cause for name, each in results.items()}


def test_what_is_not_implemented_need_not_know_the_size_of_its_struct(answering):
    path = answering("PJRT_Client_TopologyDescription", "UNIMPLEMENTED")
    names = ["plugin.empty_structs", "plugin.longer_structs"]
    report = conformance.run(path, names=names)
    assert [(each.verdict, each.text) for each in report.results] == [(Verdict.PASS, "")] * 2


def test_what_cannot_be_loaded_is_told_by_the_check_that_finds_it(answering):
    path = answering("PJRT_Plugin_Initialize", "FAILS")
    names = ["plugin.initialize", "plugin.absent_functions", "events.ready"]
    report = conformance.run(path, names=names)
    assert [each.name for each in report.defects] == ["plugin.initialize"]
    assert {each.name for each in report.hidden("plugin.initialize")} == set(names[1:])
