"""One mistake of a plugin is one defect: what it hides is told with it, and is no other one."""

from __future__ import annotations

import re

import pytest

from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Result, Verdict
from pjrt_hub.kit.conformance.cause import Causes, group
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


@pytest.mark.slow
def test_what_hangs_now_and_then_is_waited_for_a_few_times(answering):
    path = answering("PJRT_LoadedExecutable_Execute", "HANGS_LATER")
    report = conformance.run(path, names=["ops.*.ui8", "ops.*.ui16"], seconds=5)
    late = [each for each in report.results if each.verdict is Verdict.TIMEOUT]
    assert 8 <= len(late) <= 9  # the other worker may be at one more
    assert {each.function for each in late} == {"PJRT_LoadedExecutable_Execute"}
    assert [each.name for each in report.defects] == [late[0].name]
    hidden = [each.verdict for each in report.hidden(late[0].name)]
    assert hidden.count(Verdict.SKIP) == report.counts[Verdict.SKIP] > 5


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


COMPILE, DELETE = "PJRT_Client_Compile", "PJRT_Buffer_Delete"
ABORTS = "the process died of SIGABRT in PJRT_Client_Compile"
REFUSED = "of arguments: expected an executable, found the error "
BROKEN = ("abs", "add", "cosine", "negate", "sine")


def result(name, text="", verdict=Verdict.FAIL, function="", words=""):
    return Result(name, "", verdict, text, function=function, words=words)


def of_type(kind, text="of arguments: 1 of 4", ops=BROKEN):
    return [result(f"ops.{op}.{kind}", text) for op in ops]


def passing(kind, ops):
    return [result(f"ops.{op}.{kind}", verdict=Verdict.PASS) for op in ops]


#: Results in the order of a report, and how many causes they have.
GROUPS = {
    "what does not return": (
        [result(name, "", Verdict.TIMEOUT, DELETE) for name in ("buffers.a", "donation.b")],
        1,
    ),
    "other words": (
        [
            result(f"buffers.{name}", ABORTS, Verdict.CRASH, COMPILE, f"Check failed: {name} > 0")
            for name in "ab"
        ],
        2,
    ),
    "the same words with other numbers, addresses and times": (
        [
            result(
                f"compile.{n}",
                ABORTS,
                Verdict.CRASH,
                COMPILE,
                f"F0000 0:{n} {n} a.h:1] of {n} (0x{n}f)",
            )
            for n in (1, 2)
        ],
        1,
    ),
    "another signal": (
        [result(f"buffers.{text}", text, Verdict.CRASH, DELETE) for text in ("found 1", "found 2")],
        2,
    ),
    "one op on several types": (of_type("f32", ops=["sine"]) + of_type("f64", ops=["sine"]), 1),
    "one op, wrong and refused": (
        [
            result("ops.sine.f32", "of arguments: 1 of 4"),
            result("ops.sine.f64", REFUSED + "x", function=COMPILE),
        ],
        2,
    ),
    "one op, run and folded": (
        [result("ops.sine.f32", "of arguments: 1"), result("ops.sine.f64", "of constants: 1")],
        2,
    ),
    "one error of several ops": (
        [result(f"ops.{op}.f32", REFUSED + "no", function=COMPILE) for op in ("abs", "tan")],
        1,
    ),
    "a few ops of a type": (of_type("f32") + passing("f32", "abcdef"), 5),
    "most ops of a type": (of_type("f32") + passing("f32", "abcd") + of_type("i4", ops=["abs"]), 2),
    "types that fail alike": (of_type("f32") + of_type("f64"), 1),
    "types that fail in other ways": (of_type("f32") + of_type("i4", ops=["a", *BROKEN]), 2),
    "a conversion to such a type": (of_type("f32") + of_type("i8_to_f32", ops=["convert"]), 1),
    "checks of no op": ([result(f"buffers.{name}", "of: 1") for name in "ab"], 2),
}


@pytest.mark.parametrize("name", GROUPS)
def test_results_of_one_mistake_have_one_cause(name):
    results, causes = GROUPS[name]
    found = group(results)
    first = [each for each in found if each.verdict.is_defect and not each.cause]
    assert len(first) == causes, [(each.name, each.cause) for each in found]
    assert [(each.name, each.verdict, each.text) for each in found] == [
        (each.name, each.verdict, each.text) for each in results
    ]
    assert {each.cause for each in found} <= {"", *(each.name for each in first)}


def test_a_type_that_fails_is_named():
    found = group(of_type("f6") + passing("f6", ["iota"]) + of_type("f7"))
    assert found[0].notes == ("f6 and f7: 10 of 11 checks of ops fail",)
    assert {each.notes for each in found[1:]} == {()}


def test_what_hides_others_names_the_first_of_its_cause():
    late = {"verdict": Verdict.TIMEOUT, "function": DELETE}
    hidden = Result("events.c", "", Verdict.SKIP, cause="events.b")
    found = group([result("events.a", **late), result("events.b", **late), hidden])
    assert [each.cause for each in found] == ["", "events.a", "events.a"]


@pytest.mark.parametrize(("works", "broken"), [(False, 1), (True, 8)])
def test_what_does_not_return_is_not_waited_for_without_end(works, broken):
    """A function that works for some checks may hang for several; one that never did, once."""
    causes, known = Causes(), {each.name: each for each in checks()}
    causes.learn(
        known["events.ready"], result("events.ready", verdict=Verdict.PASS), [DELETE] * works
    )
    for number, name in enumerate([each for each in known if "basics" not in each][:8], 1):
        causes.learn(known[name], result(name, "", Verdict.TIMEOUT, DELETE))
        assert (causes.hung == [DELETE]) == (number >= 2)
        assert (DELETE in causes.broken) == (number >= broken)


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
