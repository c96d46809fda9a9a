"""Running programs: exact values, signatures, wrong arguments, many at once, host transfers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, equal, expect, raise_as
from pjrt_hub.kit.conformance.programs import ADD, DOUBLE, NUMBERS
from pjrt_hub.kit.conformance.slow import expect_over, is_identity, slow_arguments, slow_program
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.kit.conformance.threads import at_once
from pjrt_hub.running.capi import hotpath, irregular
from pjrt_hub.running.capi.call import Struct
from pjrt_hub.running.capi.call_counter import CallCounter

Array = np.ndarray[Any, Any]

A = NUMBERS
B = np.arange(10, 50, 10, dtype=np.float32)
SUM = [11.0, 22.0, 33.0, 44.0]


def _run(subject: Subject, text: str, *arrays: Array) -> list[Array]:
    outputs = subject.execute(subject.compile(text), [subject.put(each) for each in arrays])
    return [subject.get(each) for each in outputs]


@check(number=74)
def add(subject: Subject) -> None:
    """Run a + b of f32[4] -> the exact values."""
    (found,) = _run(subject, ADD, A, B)
    equal(found.tolist(), SUM, "a + b")


@check(number=74)
def add_again(subject: Subject) -> None:
    """Run one executable three times on different values -> the right values each time."""
    executable, b = subject.compile(ADD), subject.put(B)
    for step in range(3):
        (total,) = subject.execute(executable, [subject.put(A + step), b])
        equal(subject.get(total).tolist(), (A + B + step).tolist(), f"a + b of run {step}")


@check(number=75)
def no_arguments(subject: Subject) -> None:
    """Run a program without arguments -> its constant."""
    text = """func.func @main() -> tensor<2xi32> {
      %c = stablehlo.constant dense<[7, -7]> : tensor<2xi32>
      return %c : tensor<2xi32>
    }"""
    (found,) = _run(subject, text)
    equal(found.tolist(), [7, -7], "the constant")


@check(number=75)
def two_outputs(subject: Subject) -> None:
    """Run a program with two outputs of different types -> both, in order."""
    text = """func.func @main(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi32>) {
      %n = stablehlo.negate %a : tensor<4xf32>
      %i = stablehlo.convert %a : (tensor<4xf32>) -> tensor<4xi32>
      return %n, %i : tensor<4xf32>, tensor<4xi32>
    }"""
    negated, integers = _run(subject, text, A)
    equal((str(negated.dtype), negated.tolist()), ("float32", (-A).tolist()), "the first output")
    equal((str(integers.dtype), integers.tolist()), ("int32", [1, 2, 3, 4]), "the second output")


@check(number=75)
def no_outputs(subject: Subject) -> None:
    """Run a program without outputs -> success, and no output."""
    text = "func.func @main(%a: tensor<4xf32>) { return }"
    equal(_run(subject, text, A), [], "the outputs")


@check(number=75)
def identity(subject: Subject) -> None:
    """Run a program that returns argument a, destroy a -> the output has its values."""
    text = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"
    argument = subject.put(A)
    (output,) = subject.execute(subject.compile(text), [argument])
    subject.destroy(argument)
    equal(subject.get(output).tolist(), A.tolist(), "the output after its argument's end")


@check(number=75)
def outputs_of_their_own(subject: Subject) -> None:
    """Run a program that returns equal outputs and its argument twice -> a buffer for each."""
    text = """func.func @main(%a: tensor<4xf32>)
        -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      %n = stablehlo.negate %a : tensor<4xf32>
      return %n, %n, %a : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }"""
    executable, argument = subject.compile(text), subject.put(A)
    runs = [subject.execute(executable, [argument]) for _ in range(2)]
    buffers = [argument, *runs[0], *runs[1]]
    equal(len(set(buffers)), len(buffers), "different buffers of the argument and two runs")
    for buffer, values in zip(buffers, [A, *[-A, -A, A] * 2], strict=True):
        equal(subject.get(buffer).tolist(), values.tolist(), "an output after others' end")
        subject.call("PJRT_Buffer_Delete", buffer=buffer)


@check(number=75, seconds=60)
def thousand_arguments(subject: Subject) -> None:
    """Subtract the first of 1000 arguments from the last -> 999, as their order is kept."""
    names = ", ".join(f"%a{i}: tensor<f32>" for i in range(1000))
    text = f"""func.func @main({names}) -> tensor<f32> {{
      %d = stablehlo.subtract %a999, %a0 : tensor<f32>
      return %d : tensor<f32>
    }}"""
    (found,) = _run(subject, text, *np.arange(1, 1001, dtype=np.float32))
    equal(found.tolist(), 999.0, "argument 999 minus argument 0")


def _double(kind: str) -> str:
    return f"""func.func @main(%a: tensor<{kind}>) -> tensor<{kind}> {{
      %d = stablehlo.add %a, %a : tensor<{kind}>
      return %d : tensor<{kind}>
    }}"""


@check(number=76)
def scalar(subject: Subject) -> None:
    """Double a scalar -> rank 0, the exact value."""
    (found,) = _run(subject, _double("f32"), np.array(1.25, np.float32))
    equal((found.shape, found.tolist()), ((), 2.5), "twice 1.25")


@check(number=76)
def rank_six(subject: Subject) -> None:
    """Double an array of rank 6 -> the same shape, exact values."""
    array = np.arange(2 * 3 * 1 * 2 * 3 * 2, dtype=np.float32).reshape(2, 3, 1, 2, 3, 2)
    (found,) = _run(subject, _double("2x3x1x2x3x2xf32"), array)
    equal((found.shape, found.tolist()), (array.shape, (2 * array).tolist()), "twice the array")


@check(number=76)
def many_elements(subject: Subject) -> None:
    """Double 1000003 numbers, not a multiple of any block size -> exact values up to the last."""
    array = np.arange(1000003, dtype=np.float32)
    (found,) = _run(subject, _double("1000003xf32"), array)
    wrong = np.flatnonzero(found != 2 * array)
    for i in wrong[:1]:
        equal(float(found[i]), float(2 * array[i]), f"{wrong.size} are wrong; twice {array[i]}")


@check(number=76)
def no_elements(subject: Subject) -> None:
    """Double an array of shape [0, 3] -> the same shape, no elements."""
    (found,) = _run(subject, _double("0x3xf32"), np.zeros((0, 3), np.float32))
    equal((found.shape, found.size), ((0, 3), 0), "the shape and size")


@check(number=76)
def constant_without_elements(subject: Subject) -> None:
    """Run a program whose constant has no elements -> its shape, no elements."""
    text = """func.func @main() -> tensor<2x0xf32> {
      %c = stablehlo.constant dense<> : tensor<2x0xf32>
      return %c : tensor<2x0xf32>
    }"""
    (found,) = _run(subject, text)
    equal((found.shape, found.size), ((2, 0), 0), "the shape and size")


def _refuses_arguments(subject: Subject, arguments: Sequence[int], what: str) -> None:
    """Fail unless a run of a + b, or a read of its output, gives an error."""
    run = partial(subject.values, subject.compile(ADD), arguments, np.float32)
    subject.expect_refusal(run, f"a program of two f32[4], run on {what}")


@check(number=77)
def too_few_arguments(subject: Subject) -> None:
    """Run a + b on no and on one argument -> refused."""
    _refuses_arguments(subject, [], "no argument")
    _refuses_arguments(subject, [subject.put(A)], "one argument")


@check(number=77)
def too_many_arguments(subject: Subject) -> None:
    """Run a + b on three arguments -> refused."""
    _refuses_arguments(subject, [subject.put(A) for _ in range(3)], "three arguments")


@check(number=77)
def too_many_rows(subject: Subject) -> None:
    """Run a + b for one device on the arguments of two devices -> refused."""
    executable, row = subject.compile(ADD), [subject.put(A), subject.put(B)]

    def run() -> object:
        rows, _ = subject.launch(executable, [row, row])
        return [subject.get(total).tolist() for (total,) in rows]

    subject.expect_refusal(run, "a program for one device, run on two rows of arguments")


@check(number=78)
def smaller_argument(subject: Subject) -> None:
    """Run a + b of f32[4] on an f32[3] -> refused."""
    _refuses_arguments(subject, [subject.put(A), subject.put(B[:3])], "an f32[4] and an f32[3]")


@check(number=78)
def larger_argument(subject: Subject) -> None:
    """Run a + b of f32[4] on an f32[5] -> refused."""
    larger = np.zeros(5, np.float32)
    _refuses_arguments(subject, [subject.put(A), subject.put(larger)], "an f32[4] and an f32[5]")


@check(number=79)
def argument_of_another_type(subject: Subject) -> None:
    """Run a + b of f32[4] on an s32[4], which has as many bytes -> refused."""
    integers = subject.put(np.arange(4, dtype=np.int32))
    _refuses_arguments(subject, [subject.put(A), integers], "an f32[4] and an s32[4]")


@check(number=79)
def argument_of_another_shape(subject: Subject) -> None:
    """Run a + b of f32[4] on an f32[2,2], which has as many bytes -> refused, or their sum."""
    arguments = [subject.put(A), subject.put(B.reshape(2, 2))]
    try:
        (found,) = subject.values(subject.compile(ADD), arguments)
    except PjrtError:
        subject.usable()
    else:
        subject.note("an f32[2,2] is accepted where an f32[4] is due")
        equal(np.ravel(found).tolist(), SUM, "a + b")


@check(number=81)
def deleted_argument(subject: Subject) -> None:
    """Run a + b on a deleted buffer -> refused."""
    deleted = subject.put(B)
    subject.call("PJRT_Buffer_Delete", buffer=deleted)
    _refuses_arguments(subject, [subject.put(A), deleted], "a deleted buffer")


@check(number=82)
def complete_events(subject: Subject) -> None:
    """Run with completion events -> one for each device, which succeeds once the value is there."""
    executable, row = subject.compile(ADD), [subject.put(A), subject.put(B)]
    ((total,),), events = subject.launch(executable, [row], events=True)
    equal(len(events), 1, "the number of events of one device")
    subject.await_(events[0])
    equal(subject.get(total).tolist(), SUM, "a + b")


@check(number=82)
def complete_is_not_early(subject: Subject) -> None:
    """Await the completion of running work, then read the output -> it is there at once."""
    text = "expected completion after the work, found it during it"
    expect_over(subject, text, lambda _, complete: subject.await_(complete))


@check(number=82)
def execute_device(subject: Subject) -> None:
    """Run with execute_device set to the program's device -> the output lies there."""
    executable, row = subject.compile(ADD), [subject.put(A), subject.put(B)]
    ((total,),), _ = subject.launch(executable, [row], execute_device=subject.device)
    equal(subject.get(total).tolist(), SUM, "a + b")
    equal(subject.call("PJRT_Buffer_Device", buffer=total), subject.device, "the output's device")


@check(number=83)
def chain(subject: Subject) -> None:
    """Run 64 times, each on the last output, destroying inputs at once -> the exact value."""
    executable, one = subject.compile(ADD), subject.put(np.ones(4, np.float32))
    value = subject.put(np.zeros(4, np.float32))
    for _ in range(64):
        (after,) = subject.execute(executable, [value, one])
        subject.destroy(value)
        value = after
    equal(subject.get(value).tolist(), [64.0] * 4, "64 times one")


@check(number=83)
def executable_destroyed_early(subject: Subject) -> None:
    """Destroy executable and arguments while the program runs -> the right output."""
    executable, arguments = slow_program(subject), slow_arguments(subject)
    (output,) = subject.execute(executable, arguments)
    subject.destroy(executable, *arguments)
    expect(is_identity(subject, output), "the output is another value than computed")


@check(number=84)
def threads(subject: Subject) -> None:
    """4 threads run one executable 4 times each -> 16 exact results."""
    executable = subject.compile(ADD)
    argument = subject.put(A)
    others = [[subject.put(A * (4 * thread + run)) for run in range(4)] for thread in range(4)]

    def work(mine: list[int]) -> list[list[float]]:
        rows = [subject.launch(executable, [[argument, each]], num_outputs=1)[0] for each in mine]
        return [subject.get(total).tolist() for ((total,),) in rows]

    found = at_once([partial(work, mine) for mine in others])
    wanted = [[(A * (1 + 4 * thread + run)).tolist() for run in range(4)] for thread in range(4)]
    equal(found, wanted, "the results by thread and run")


@check(number=85)
def deleted_executable(subject: Subject) -> None:
    """Delete an executable -> IsDeleted becomes true, and a run is refused."""
    executable, argument = subject.compile(DOUBLE), subject.put(A)
    is_deleted = partial(subject.call, "PJRT_LoadedExecutable_IsDeleted", executable=executable)
    equal(is_deleted(), False, "IsDeleted before Delete")
    subject.call("PJRT_LoadedExecutable_Delete", executable=executable)
    equal(is_deleted(), True, "IsDeleted after Delete")

    def run() -> object:
        (output,) = subject.launch(executable, [[argument]], num_outputs=1)[0][0]
        return subject.get(output).tolist()

    subject.expect_refusal(run, "a run of a deleted executable")


def _adds_with(subject: Subject, **options: object) -> None:
    arguments = [subject.put(A), subject.put(B)]
    equal(subject.values(subject.compile(ADD), arguments, **options), [SUM], "a + b")


@check(number=86)
def launch_id(subject: Subject) -> None:
    """Run with launch ids 0, 1, -1 and the largest -> the exact values."""
    for each in (0, 1, -1, 2**31 - 1):
        _adds_with(subject, launch_id=each)


@check(since=76, number=86)
def call_location(subject: Subject) -> None:
    """Run with a call location -> the exact values."""
    _adds_with(subject, call_location="model.py:12")


@check(since=64, number=86)
def context(subject: Subject) -> None:
    """Run in an execute context -> the exact values."""
    context = subject.call("PJRT_ExecuteContext_Create")
    try:
        _adds_with(subject, context=context)
    finally:
        subject.call("PJRT_ExecuteContext_Destroy", context=context)


@check(since=78, number=86)
def incarnations(subject: Subject) -> None:
    """Run with the incarnation of this process -> the exact values, or refused."""
    process = subject.call("PJRT_Client_ProcessIndex", client=subject.client)
    try:
        _adds_with(subject, task_ids=[process], incarnation_ids=[1])
    except PjrtError as exc:  # A plugin may refuse an incarnation that it was never told of.
        subject.note(f"an incarnation that it does not know is refused: {exc.message}")


_SENT = np.arange(1024, dtype=np.float32).reshape(8, 128)
_RECEIVED = -_SENT
_SEND, _RECV = 1, 2  # The numbers of the two channels.
_BY_ROWS = ("use_major_to_minor_data_layout_for_callbacks",)

_EXCHANGE = f"""
module @exchange {{
  func.func @main(%a: tensor<8x128xf32>) -> tensor<8x128xf32> {{
    %t = stablehlo.create_token : !stablehlo.token
    %s = "stablehlo.send"(%a, %t) {{
        channel_handle = #stablehlo.channel_handle<handle = {_SEND}, type = 2>,
        is_host_transfer = true,
        mhlo.frontend_attributes = {{_xla_host_transfer_handler_name = "conformance",
                                     _xla_host_transfer_rendezvous = "to_host"}}}}
        : (tensor<8x128xf32>, !stablehlo.token) -> !stablehlo.token
    %r:2 = "stablehlo.recv"(%s) {{
        channel_handle = #stablehlo.channel_handle<handle = {_RECV}, type = 3>,
        is_host_transfer = true,
        mhlo.frontend_attributes = {{_xla_host_transfer_handler_name = "conformance",
                                     _xla_host_transfer_rendezvous = "to_device"}}}}
        : (!stablehlo.token) -> (tensor<8x128xf32>, !stablehlo.token)
    return %r#0 : tensor<8x128xf32>
  }}
}}
"""


class _Exchange:
    """The host's side of `_EXCHANGE`: it takes what the program sends, and gives two chunks."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.sent = bytearray()
        self.ends: list[tuple[int, bool]] = []  # Each chunk's `total`, and whether it was the last.
        self.filled: list[int] = []  # The stream's total bytes, then its bytes before each chunk.
        self.freed = CallCounter()
        self.events: list[int] = []

    def send(self, chunk: bytes, total: int, done: bool) -> None:
        self.sent += chunk
        self.ends.append((total, done))

    def receive(self, stream: int) -> None:
        call = self._subject.api.call
        half = _RECEIVED.nbytes // 2
        self.filled.append(call("PJRT_CopyToDeviceStream_TotalBytes", stream=stream))
        for offset in (0, half):
            self.filled.append(call("PJRT_CopyToDeviceStream_CurrentBytes", stream=stream))
            address = _RECEIVED.ctypes.data + offset
            chunk = {"data": address, "size": half, "deleter": self.freed.address}
            self.events.append(call("PJRT_CopyToDeviceStream_AddChunk", stream=stream, chunk=chunk))
        call("PJRT_CopyToDeviceStream_Destroy", stream=stream)


@check(number=90)
def exchange(subject: Subject) -> None:
    """Run a program that sends and receives -> right bytes both ways, totals, one last chunk."""
    with raise_as(Unsupported, "it compiles no host transfer:"):
        executable = subject.compile(_EXCHANGE)
    host = _Exchange(subject)
    api = subject.api.address
    sender, send_arg, send, *_ = hotpath.host_transfer(api, host.send)
    receiver, recv_arg, _, recv, *_ = hotpath.host_transfer(api, host.receive)
    members = dict.fromkeys(_BY_ROWS if subject.minor >= 108 else (), True)
    options = Struct("PJRT_ExecuteOptions", members, subject.api.version)
    irregular.put_rows(options, "send", [[(_SEND, send_arg, send)]])
    irregular.put_rows(options, "recv", [[(_RECV, recv_arg, recv)]])
    row = [subject.put(_SENT)]
    ((output,),), (event,) = subject.launch(executable, [row], options.address, events=True)
    subject.await_(event)
    equal(subject.get(output).tolist(), _RECEIVED.tolist(), "what the program received")
    expect(host.sent == _SENT.tobytes(), "the bytes that the program sent are other ones")
    totals = {total for total, _ in host.ends}
    equal(totals, {_SENT.nbytes}, "the total bytes that each chunk tells")
    lasts = [done for _, done in host.ends]
    equal(lasts, [False] * (len(lasts) - 1) + [True], "whether each chunk is the last")
    equal(host.filled, [4096, 0, 2048], "the stream's total, and what was in it at each chunk")
    for each in host.events:
        subject.await_(each)
    equal(len(host.freed.wait(2)), 2, "how many of two chunks were freed")
    del sender, receiver  # They had to live for as long as the plugin could call them.
