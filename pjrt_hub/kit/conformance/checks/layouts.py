"""How arrays lie, as clients, buffers, programs and topologies tell it (area extensions)."""

from __future__ import annotations

import re

import numpy as np

from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import equal, expect
from pjrt_hub.kit.conformance.programs import ADD
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.array import dtypes

_F32 = dtypes.of_numpy("float32").code
_TWO_BY_THREE = np.arange(6, dtype=np.float32).reshape(2, 3)
_ADD_2X3 = ADD.replace("4xf32", "2x3xf32")


@check(area="extensions", extension="Layouts", number=14)
def default_layout(subject: Subject) -> None:
    """Ask twice for the client's default layout of f32[2,3] -> the same order of dimensions."""
    texts = [_default_layout(subject) for _ in range(2)]
    equal(texts[1], texts[0], "the default layout, asked again")
    _orders(subject, texts[0])


@check(area="extensions", extension="Layouts", number=14)
def buffer_layout(subject: Subject) -> None:
    """Ask for the layout of an f32[2,3] buffer -> the client's default."""
    layout = subject.extension("Layouts").call(
        "PJRT_Layouts_PJRT_Buffer_MemoryLayout", buffer=subject.put(_TWO_BY_THREE)
    )
    equal(_take_text(subject, layout), _default_layout(subject), "the layout of a buffer f32[2,3]")


@check(area="extensions", extension="Layouts", number=15)
def output_layouts(subject: Subject) -> None:
    """Ask twice for a program's output layouts -> one, the default; the caller frees none."""
    _executable_layouts(subject, "PJRT_Layouts_PJRT_Executable_GetOutputLayouts", 1)


@check(area="extensions", extension="Layouts", number=15)
def parameter_layouts(subject: Subject) -> None:
    """Ask twice for a program's parameter layouts -> two, each the default."""
    _executable_layouts(subject, "PJRT_Layouts_PJRT_Executable_GetParameterLayouts", 2)


@check(area="extensions", extension="Layouts", needs="topology", number=16)
def topology_layout(subject: Subject) -> None:
    """Ask for the topology's default layout of f32[2,3] -> an order of both dimensions."""
    layout = subject.extension("Layouts").call(
        "PJRT_Layouts_PJRT_Topology_GetDefaultLayout",
        topology_description=subject.topology,
        type=_F32,
        dims=(2, 3),
    )
    _orders(subject, _take_text(subject, layout))


def _default_layout(subject: Subject) -> str:
    layout = subject.extension("Layouts").call(
        "PJRT_Layouts_PJRT_Client_GetDefaultLayout", client=subject.client, type=_F32, dims=(2, 3)
    )
    return _take_text(subject, layout)


def _orders(subject: Subject, layout: str) -> None:
    """Fail unless a layout of f32[2,3] orders both dimensions; the header demands no order."""
    order = re.match(r"\{(1,0|0,1)[:}]", layout)
    expect(order is not None, f"expected {{1,0}} or {{0,1}} of f32[2,3], found {layout}")
    if not layout.startswith("{1,0"):
        subject.note(f"arrays do not lie row-major by default: f32[2,3] is {layout}")


def _executable_layouts(subject: Subject, name: str, count: int) -> None:
    executable = subject.executable(subject.compile(_ADD_2X3))
    # A layout that the first call freed by mistake would be gone the second time.
    for _ in range(2):
        layouts = subject.extension("Layouts").call(name, executable=executable)
        equal(len(layouts), count, "layouts")
        default = _default_layout(subject)
        for layout in layouts:
            equal(_text(subject, layout), default, "the layout of f32[2,3]")


def _take_text(subject: Subject, layout: int) -> str:
    """Read a layout that is the caller's, and destroy it."""
    try:
        return _text(subject, layout)
    finally:
        subject.extension("Layouts").call("PJRT_Layouts_MemoryLayout_Destroy", layout=layout)


def _text(subject: Subject, layout: int) -> str:
    node = subject.extension("Layouts")
    return node.call("PJRT_Layouts_MemoryLayout_Serialize", layout=layout).decode()
