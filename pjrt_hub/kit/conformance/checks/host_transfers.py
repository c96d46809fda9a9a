"""Host transfers: what a running program sends to the host and receives from it."""

from __future__ import annotations

import numpy as np

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, equal, expect
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import hotpath, irregular
from pjrt_hub.running.capi.call import Struct
from pjrt_hub.running.capi.call_counter import CallCounter

_SHAPE = (8, 128)
_SENT = np.arange(1024, dtype=np.float32).reshape(_SHAPE)
_RECEIVED = -_SENT
_SEND, _RECV = 1, 2  # These are the channels.

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
    """The host's side of the program: takes what comes, gives what is asked for, in two chunks."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.sent = bytearray()
        # Each chunk has its total bytes, and whether it is the last.
        self.ends: list[tuple[int, bool]] = []
        # These are the bytes in the stream before, between and after the chunks.
        self.filled: list[int] = []
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
            chunk = {
                "data": _RECEIVED.ctypes.data + offset,
                "size": half,
                "deleter": self.freed.address,
            }
            self.events.append(call("PJRT_CopyToDeviceStream_AddChunk", stream=stream, chunk=chunk))
        call("PJRT_CopyToDeviceStream_Destroy", stream=stream)


@check(area="execute", number=90)
def exchange(subject: Subject) -> None:
    """Run a program that sends and receives -> all bytes both ways, totals, one last chunk."""
    try:
        executable = subject.compile(_EXCHANGE)
    except PjrtError as exc:
        raise Unsupported(f"it compiles no host transfer: {exc.message}") from exc
    host = _Exchange(subject)
    api = subject.api.address
    sender, send_arg, send, *_ = hotpath.host_transfer(api, host.send)
    receiver, recv_arg, _, recv, *_ = hotpath.host_transfer(api, host.receive)
    members = {}
    if subject.minor >= 108:
        members["use_major_to_minor_data_layout_for_callbacks"] = True
    options = Struct("PJRT_ExecuteOptions", members, subject.api.version)
    irregular.put_rows(options, "send", [[(_SEND, send_arg, send)]])
    irregular.put_rows(options, "recv", [[(_RECV, recv_arg, recv)]])
    ((output,),), (event,) = subject.launch(
        executable, [[subject.put(_SENT)]], options.address, events=True
    )
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
    del sender, receiver  # The plugin called them until here.
