"""Answers in the plugin's memory, which must stay as long as the object that was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, equal
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import unchecked

#: A question is a function, the name of its argument, and the object that it is asked about.
Question = tuple[str, str, int]

_OTHER = """
module @another {
  func.func @main(%a: tensor<2x3xi32>) -> (tensor<2x3xi32>, tensor<3x1x2xf32>) {
    %n = stablehlo.negate %a : tensor<2x3xi32>
    %c = stablehlo.constant dense<1.0> : tensor<3x1x2xf32>
    return %n, %c : tensor<2x3xi32>, tensor<3x1x2xf32>
  }
}
"""


def _client(subject: Subject) -> Iterator[Question]:
    for name in ("PlatformName", "PlatformVersion", "Devices", "AddressableDevices"):
        yield f"PJRT_Client_{name}", "client", subject.client
    yield "PJRT_Client_AddressableMemories", "client", subject.client


def _devices(subject: Subject) -> Iterator[Question]:
    for device in subject.call("PJRT_Client_Devices", client=subject.client):
        description = subject.call("PJRT_Device_GetDescription", device=device)
        for name in ("Kind", "DebugString", "ToString", "Attributes"):
            yield f"PJRT_DeviceDescription_{name}", "device_description", description
    for device in subject.devices:
        yield "PJRT_Device_AddressableMemories", "device", device


def _memories(subject: Subject) -> Iterator[Question]:
    for memory in subject.call("PJRT_Client_AddressableMemories", client=subject.client):
        for name in ("Kind", "DebugString", "ToString", "AddressableByDevices"):
            yield f"PJRT_Memory_{name}", "memory", memory


def _topology(subject: Subject) -> Iterator[Question]:
    for name in ("PlatformName", "PlatformVersion", "GetDeviceDescriptions", "Attributes"):
        yield f"PJRT_TopologyDescription_{name}", "topology", subject.topology


def _programs(subject: Subject) -> Iterator[Question]:
    for text in (ADD, _OTHER):
        loaded = subject.compile(text)
        executable = subject.executable(loaded)
        names = ("Name", "OutputElementTypes", "OutputDimensions", "OutputMemoryKinds")
        for name in (*names, "Fingerprint", "GetCostAnalysis"):
            yield f"PJRT_Executable_{name}", "executable", executable
        yield "PJRT_LoadedExecutable_AddressableDevices", "executable", loaded


def _buffers(subject: Subject) -> Iterator[Question]:
    for shape, dtype in (((2, 3), np.float32), ((5, 1, 7), np.int32), ((4,), np.uint8)):
        buffer = subject.put(np.zeros(shape, dtype))
        for name in ("Dimensions", "UnpaddedDimensions", "GetMemoryLayout"):
            yield f"PJRT_Buffer_{name}", "buffer", buffer


def _are_kept(questions: Callable[[Subject], Iterator[Question]], subject: Subject) -> None:
    answers = []
    for function, member, address in questions(subject):
        if not subject.api.has(function):
            continue
        try:
            read = unchecked.reader(subject.api, function, **{member: address})
        except PjrtError:  # Another check tells whether the plugin may refuse.
            continue
        answers.append((function, read, read()))
    if not answers:
        raise Unsupported("the plugin answers none of the questions")
    for function, read, first in answers:
        equal(read(), first, f"what {function} answered, after other questions")


for _area, _number, _needs, _questions, _words in (
    ("client", 27, "client", _client, "a client"),
    ("devices", 41, "client", _devices, "each device"),
    ("memories", 47, "client", _memories, "each memory"),
    ("topology", 53, "topology", _topology, "a topology"),
    ("compile", 71, "client", _programs, "two programs"),
    ("buffers", 98, "client", _buffers, "three buffers"),
):
    check(
        area=_area,
        number=_number,
        needs=_needs,
        name="answers_stay",
        title=f"Ask {_words} for all texts and lists -> the first answer is intact after the last",
    )(partial(_are_kept, _questions))
