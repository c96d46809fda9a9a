"""One mistake of a plugin is one defect: what it hides is reported with it, not as another one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Result, Verdict
from pjrt_hub.kit.conformance.cause import Causes, group
from pjrt_hub.kit.conformance.check import checks

#: A function and its fault -> the check that reports it, its verdict and a part of its text.
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
#: Defects that the real plugin has in the areas that are checked here.
REAL = {"execute.argument_of_another_type", "execute.deleted_executable"}
CHECKED = ("execute", "events", "external")
ADDS = "ops.add.f32*"


@pytest.mark.slow
@pytest.mark.night
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


@pytest.mark.slow
def test_what_hangs_now_and_then_is_waited_for_a_few_times(answering):
    path = answering("PJRT_LoadedExecutable_Execute", "HANGS_LATER")
    report = conformance.run(path, names=["ops.*.ui8", "ops.*.ui16"], seconds=5)
    late = [each for each in report.results if each.verdict is Verdict.TIMEOUT]
    assert 8 <= len(late) <= 9  # the other worker may be in one more check
    assert {each.function for each in late} == {"PJRT_LoadedExecutable_Execute"}
    assert [each.name for each in report.defects] == [late[0].name]
    hidden = [each.verdict for each in report.hidden(late[0].name)]
    assert hidden.count(Verdict.SKIP) == report.counts[Verdict.SKIP] > 5


@pytest.mark.slow
def test_what_hangs_in_a_separate_process_hides_what_else_calls_it(answering):
    path = answering("PJRT_Client_Destroy", "HANGS")
    report = conformance.run(path, names=["client.create_again", "leaks.client"], jobs=1)
    first, hidden = report.results
    assert (first.verdict, first.function) == (Verdict.TIMEOUT, "PJRT_Client_Destroy")
    assert "took longer than 15" in first.text
    assert (hidden.verdict, hidden.cause) == (Verdict.SKIP, "client.create_again")


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


DELETE, COMPILE = "PJRT_Buffer_Delete", "PJRT_Client_Compile"


def late(name):
    return Result(name, "", Verdict.TIMEOUT, function=DELETE)


def died(name, words="", text="SIGABRT"):
    return Result(name, "", Verdict.CRASH, text, words=words, function=DELETE)


def wrong(*ops, of="arguments"):
    return [Result(f"ops.{op}", "", Verdict.FAIL, f"of {of}: 1 of 4") for op in ops]


def refused(op, words):
    return Result(f"ops.{op}", "", Verdict.FAIL, f"of arguments: {words}", function=COMPILE)


def of_type(kind, *more, right=""):
    """Return results on a type: five ops and those of `more` fail, and those of `right` pass."""
    passing = [Result(f"ops.{op}.{kind}", "", Verdict.PASS) for op in right]
    return [*wrong(*(f"{op}.{kind}" for op in (*"vwxyz", *more))), *passing]


#: Name -> the number of causes, and the results that have them, in the order of a report.
GROUPS = {
    "what does not return": (1, late("buffers.a"), late("donation.b")),
    "other words": (2, died("buffers.a", "a > 0"), died("buffers.b", "b > 0")),
    "other numbers": (1, *(died(f"a.{n}", f"F0000 0:{n} {n} a.h:1] {n} (0x{n}f)") for n in (1, 2))),
    "another signal": (2, died("buffers.a"), died("buffers.b", text="SIGSEGV")),
    "one op on several types": (1, *wrong("sine.f32", "sine.f64")),
    "one op, wrong and refused": (2, *wrong("sine.f32"), refused("sine.f64", "no")),
    "one op, run and folded": (2, *wrong("sine.f32"), *wrong("sine.f64", of="constants")),
    "one error of several ops": (1, refused("abs.f32", "no"), refused("tan.f32", "no")),
    "other errors of several ops": (2, refused("abs.f32", "no"), refused("tan.f32", "never")),
    "a few ops of a type": (5, *of_type("f32", right="abcdef")),
    "most ops of a type": (2, *of_type("f32", right="abcd"), *wrong("v.i4")),
    "types that fail alike": (1, *of_type("f32"), *of_type("f64")),
    "types that fail in other ways": (2, *of_type("f32"), *of_type("i4", "a")),
    "a conversion to such a type": (1, *of_type("f32"), *wrong("convert.i8_to_f32")),
}


@pytest.mark.parametrize("name", GROUPS)
def test_results_of_one_mistake_have_one_cause(name):
    number, *results = GROUPS[name]
    found = group(results)
    first = {each.name for each in found if each.verdict.is_defect and not each.cause}
    assert len(first) == number, [(each.name, each.cause) for each in found]
    assert {each.cause for each in found} <= {"", *first}
    assert [replace(each, cause="", notes=()) for each in found] == results


def test_a_type_that_fails_is_named():
    told = [each.notes for each in group([*of_type("f6", right="a"), *of_type("f7")])]
    assert told == [("f6 and f7: 10 of 11 checks of ops fail",), *[()] * 10]


def test_what_hides_others_names_the_first_of_its_cause():
    hidden = Result("events.c", "", Verdict.SKIP, cause="events.b")
    found = group([late("events.a"), late("events.b"), hidden])
    assert [each.cause for each in found] == ["", "events.a", "events.a"]


@pytest.mark.parametrize(("works", "broken"), [([], 1), ([DELETE], 8)])
def test_what_hangs_in_some_checks_does_not_work_in_the_end(works, broken):
    causes, (first, *others) = Causes(), (each for each in checks() if not each.proves)
    causes.learn(first, Result(first.name, "", Verdict.PASS), works)
    for number, check in enumerate(others[:8], 1):
        causes.learn(check, late(check.name))
        assert (causes.hung == [DELETE]) == (number >= 2)
        assert causes.broken == ({DELETE: others[0].name} if number >= broken else {})


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
