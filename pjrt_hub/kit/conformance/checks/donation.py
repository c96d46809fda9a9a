"""Donation: arguments whose memory a program takes over, and those that must be kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.checks.execute import SUM, A, Array, B
from pjrt_hub.kit.conformance.finding import Skipped, Unsupported, equal, expect
from pjrt_hub.kit.conformance.subject import GIVEN_ERROR, Subject
from pjrt_hub.kit.conformance.threads import at_once
from pjrt_hub.running.capi import irregular

BOTH = [SUM, (A - B).tolist()]


def _add(donated: Sequence[int]) -> str:
    """Write a program of a + b and a - b, which take over the arguments in `donated` in order."""
    alias = {
        index: f" {{tf.aliasing_output = {place} : i32}}" for place, index in enumerate(donated)
    }
    return f"""
    func.func @main(%a: tensor<4xf32>{alias.get(0, "")}, %b: tensor<4xf32>{alias.get(1, "")})
        -> (tensor<4xf32>, tensor<4xf32>) {{
      %s = stablehlo.add %a, %b : tensor<4xf32>
      %d = stablehlo.subtract %a, %b : tensor<4xf32>
      return %s, %d : tensor<4xf32>, tensor<4xf32>
    }}"""


def _are_deleted(subject: Subject, *buffers: int) -> list[bool]:
    return [subject.call("PJRT_Buffer_IsDeleted", buffer=each) for each in buffers]


def _is_kept(subject: Subject, buffer: int, what: str) -> None:
    equal(_are_deleted(subject, buffer), [False], f"IsDeleted of {what}")
    equal(subject.get(buffer).tolist(), A.tolist(), f"the values of {what}")


def _takes_over(subject: Subject, donated: Mapping[int, Array], *kept: int) -> None:
    """Fail if a kept buffer is deleted, or if a donated one still exists and has changed.

    A plugin may leave donated buffers alone, which is noted.
    """
    equal(_are_deleted(subject, *kept), [False] * len(kept), "IsDeleted of what is kept")
    alive = [each for each in donated if not _are_deleted(subject, each)[0]]
    if alive:
        subject.note(f"donates nothing of {len(alive)} argument(s) that it might take over")
    for each in alive:
        equal(subject.get(each).tolist(), donated[each].tolist(), "the values of what was kept")


def _require_donation(subject: Subject) -> None:
    """Skip a check of what happens to donated buffers, if the plugin donates none."""
    a = subject.put(A)
    subject.execute(subject.compile(_add([0])), [a, subject.put(B)])
    if not _are_deleted(subject, a)[0]:
        raise Skipped("the plugin donates nothing, which it need not do")


@check(number=123)
def donated(subject: Subject) -> None:
    """Run a + b, donating a -> the sum; a is deleted or unchanged, b is unchanged."""
    a, b = subject.put(A), subject.put(B)
    equal(subject.values(subject.compile(_add([0])), [a, b]), BOTH, "a + b and a - b")
    _takes_over(subject, {a: A}, b)


@check(number=124)
def swapped(subject: Subject) -> None:
    """Run a + b and a - b, donating b and a -> both values; b and a are deleted or unchanged."""
    a, b = subject.put(A), subject.put(B)
    equal(subject.values(subject.compile(_add([1, 0])), [a, b]), BOTH, "a + b and a - b")
    _takes_over(subject, {a: A, b: B})


@check(number=124)
def twelfth_argument(subject: Subject) -> None:
    """Run a program that donates argument 11 of 12 -> the value; no other is deleted."""
    names = ", ".join(f"%a{index}: tensor<4xf32>" for index in range(11))
    text = f"""
    func.func @main({names}, %a11: tensor<4xf32> {{tf.aliasing_output = 0 : i32}})
        -> tensor<4xf32> {{
      %s = stablehlo.add %a0, %a11 : tensor<4xf32>
      return %s : tensor<4xf32>
    }}"""
    arguments = [subject.put(A * index) for index in range(12)]
    found = subject.values(subject.compile(text), arguments)
    equal(found, [(11 * A).tolist()], "argument 0 plus argument 11")
    _takes_over(subject, {arguments[11]: A * 11}, *arguments[:11])


@check(number=125)
def kept(subject: Subject) -> None:
    """Run a + b with a donated but non-donatable in this call -> the sum; a keeps its values."""
    a, b = subject.put(A), subject.put(B)
    executable = subject.compile(_add([0]))
    found = subject.values(executable, [a, b], non_donatable_input_indices=[0])
    equal(found, BOTH, "a + b and a - b")
    _is_kept(subject, a, "a")


_MUST_ALIAS = """
module attributes {mhlo.input_output_alias = [{
    alias = {kind = "must_alias", parameter_index = array<i64>, parameter_number = 0 : i64},
    output_index = array<i64>}]} {
  func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
    %s = stablehlo.add %a, %b : tensor<4xf32>
    return %s : tensor<4xf32>
  }
}
"""


@check(number=126)
def must_alias_of_kept(subject: Subject) -> None:
    """Run with a "must alias" argument that is non-donatable -> refused or the sum; a is kept."""
    a, b = subject.put(A), subject.put(B)
    executable = subject.compile(_MUST_ALIAS)
    try:
        found = subject.values(executable, [a, b], non_donatable_input_indices=[0])
        equal(found, [SUM], "a + b")
    except PjrtError:
        subject.usable()
    else:
        subject.note("what must alias a kept argument gets a copy, no error")
    equal(subject.get(a).tolist(), A.tolist(), "the values of a")


def _refuses_pair(subject: Subject, donated: Sequence[int]) -> None:
    """Fail unless one buffer as both arguments is refused before anything is donated."""
    _require_donation(subject)
    buffer, executable = subject.put(A), subject.compile(_add(donated))
    which = " and ".join(f"argument {index}" for index in sorted(donated))
    run = partial(subject.values, executable, [buffer, buffer])
    subject.expect_refusal(run, f"one buffer as both arguments, of which {which} is donated")
    _is_kept(subject, buffer, "the refused buffer")


for _name, _what, _donated in (
    ("twice", "both", [0, 1]),
    ("first", "a", [0]),
    ("second", "b", [1]),
):
    check(
        number=127,
        name=f"same_buffer_donated_{_name}",
        title=f"Run a + b on one buffer as both, donating {_what} -> refused, the buffer is kept",
    )(partial(_refuses_pair, donated=_donated))


@check(number=128)
def used_after(subject: Subject) -> None:
    """Use a donated buffer in a run, a copy and its event -> each is refused."""
    _require_donation(subject)
    a, b = subject.put(A), subject.put(B)
    executable = subject.compile(_add([0]))
    subject.execute(executable, [a, b])
    for what, use in {
        "a run on a donated buffer": lambda: subject.values(executable, [a, b]),
        "a copy of a donated buffer": lambda: subject.get(a, np.float32),
        "the event of a donated buffer": lambda: subject.wait(a),
    }.items():
        subject.expect_refusal(use, what)


@check(number=84)
def threads(subject: Subject) -> None:
    """Donate one buffer in 4 threads at once -> one run has the sum, three are refused."""
    _require_donation(subject)
    a, b = subject.put(A), subject.put(B)
    executable = subject.compile(_add([0]))

    def run() -> object:
        (outputs,), _ = subject.launch(executable, [[a, b]], num_outputs=2)
        return [subject.get(each).tolist() for each in outputs]

    found = at_once([run] * 4)
    refusals = [each for each in found if isinstance(each, PjrtError)]
    sums = [each for each in found if each == BOTH]
    equal((len(sums), len(refusals)), (1, 3), "how many threads have the sum, and are refused")
    subject.usable()


_STEP = """
func.func @main(%a: tensor<32x32xf32> {tf.aliasing_output = 0 : i32}) -> tensor<32x32xf32> {
  %one = stablehlo.constant dense<1.0> : tensor<32x32xf32>
  %s = stablehlo.add %a, %one : tensor<32x32xf32>
  return %s : tensor<32x32xf32>
}
"""


@check(number=129)
def thousand_steps(subject: Subject) -> None:
    """Run a donating step 1000 times, destroying no buffer -> the exact value, no more memory."""
    executable = subject.compile(_STEP)
    value = subject.put(np.zeros((32, 32), np.float32))
    before = _bytes_in_use(subject)
    for _ in range(1000):
        (value,) = subject.execute(executable, [value])
    subject.wait(value)
    after = _bytes_in_use(subject)
    expect(bool((subject.get(value) == 1000).all()), "1000 steps of one do not give 1000")
    if before is not None and after is not None:
        limit = before + (1 << 20)  # Keeping all 1000 values would take four times this much.
        expect(after <= limit, f"bytes in use: expected at most {limit}, found {after}")


def _bytes_in_use(subject: Subject) -> int | None:
    try:
        return subject.call("PJRT_Device_MemoryStats", device=subject.device).bytes_in_use
    except (Unsupported, PjrtError):
        return None


def _dependent(subject: Subject, source: int) -> tuple[int, Callable[[int, str], object]]:
    name = "PJRT_Buffer_DonateWithControlDependency"
    answer = subject.call(name, buffer=source)
    given = f"{name}_Callback_Args", answer.dependency_ready_callback, answer.callback_data
    return subject.own("Buffer", answer.out_buffer), partial(irregular.answer, *given)


@check(since=88, number=130)
def control_dependency(subject: Subject) -> None:
    """Donate with a control dependency, end it -> a new buffer has the deleted one's values."""
    source = subject.put(A)
    heir, settle = _dependent(subject, source)
    settle(0, "")
    subject.wait(heir)
    equal(subject.get(heir).tolist(), A.tolist(), "the values of the heir")
    equal(_are_deleted(subject, source), [True], "IsDeleted of the source")


@check(since=88, number=130)
def control_dependency_fails(subject: Subject) -> None:
    """Donate with a control dependency, fail it -> the new buffer's event has the error's text."""
    heir, settle = _dependent(subject, subject.put(A))
    settle(*GIVEN_ERROR.values())
    subject.expect_given_error(lambda: subject.wait(heir), "awaiting the heir")


@check(number=131)
def referenced(subject: Subject) -> None:
    """Donate a buffer with an external reference -> the sum or refused; the memory is kept."""
    a, b = subject.put(A), subject.put(B)
    executable = subject.compile(_add([0]))
    subject.call("PJRT_Buffer_IncreaseExternalReferenceCount", buffer=a)
    try:
        equal(subject.values(executable, [a, b]), BOTH, "a + b and a - b")
    except PjrtError:
        subject.note("donating a buffer with an external reference is refused")
    else:
        subject.note("donating a buffer with an external reference makes a copy")
    finally:
        subject.call("PJRT_Buffer_DecreaseExternalReferenceCount", buffer=a)
    _is_kept(subject, a, "a")
