"""What a compiler tells about a program's costs and memory."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np

from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, ask_twice, at_least, equal, expect
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import unchecked

_SIZE = 64
_MATMUL = f"""
func.func @main(%a: tensor<{_SIZE}x{_SIZE}xf32>, %b: tensor<{_SIZE}x{_SIZE}xf32>)
    -> tensor<{_SIZE}x{_SIZE}xf32> {{
  %product = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<{_SIZE}x{_SIZE}xf32>, tensor<{_SIZE}x{_SIZE}xf32>) -> tensor<{_SIZE}x{_SIZE}xf32>
  return %product : tensor<{_SIZE}x{_SIZE}xf32>
}}
"""
_DONATING = f"""
func.func @main(%a: tensor<{_SIZE}x{_SIZE}xf32> {{tf.aliasing_output = 0 : i32}})
    -> tensor<{_SIZE}x{_SIZE}xf32> {{
  %sum = stablehlo.add %a, %a : tensor<{_SIZE}x{_SIZE}xf32>
  return %sum : tensor<{_SIZE}x{_SIZE}xf32>
}}
"""
_FLOPS = 2 * _SIZE**3
_NBYTES = 4 * _SIZE**2
_COSTS, _STATS = "PJRT_Executable_GetCostAnalysis", "PJRT_Executable_GetCompiledMemoryStats"


@check(needs="plugin", number=146, seconds=60)
def flops(subject: Subject) -> None:
    """Ask for the cost of a product of 64 x 64 matrices -> 2 * 64^3 flops, within a factor of 2."""
    found = _costs(subject, subject.compile_executable(_MATMUL)).get("flops")
    if not isinstance(found, float):
        raise Unsupported("the cost analysis tells no flops")
    expect(_FLOPS / 2 <= found <= 2 * _FLOPS, f"expected about {_FLOPS} flops, found {found:g}")


@check(needs="plugin", number=146, seconds=60)
def costs(subject: Subject) -> None:
    """Ask for all costs of a matrix product -> finite numbers from 0, or -1, each name once."""
    executable = subject.compile_executable(_MATMUL)
    _costs(subject, executable)
    found = unchecked.named_values(subject.api, _COSTS, executable=executable)
    equal(len(dict(found)), len(found), "different names among the costs")
    for name, value in found:
        if isinstance(value, float):
            right = "a number from 0, or -1 where it is unknown"
            expect(math.isfinite(value) and value >= -1, f"{name}: expected {right}, found {value}")


@check(needs="plugin", number=147, since=40, seconds=60)
def memory_stats(subject: Subject) -> None:
    """Ask for the memory of a matrix product -> at least the bytes of its arguments and output."""
    stats = _stats(subject, subject.compile_executable(_MATMUL))
    for name, least in (("argument", 2 * _NBYTES), ("output", _NBYTES)):
        at_least(getattr(stats, f"{name}_size_in_bytes"), least, f"{name}_size_in_bytes")
    equal(stats.alias_size_in_bytes, 0, "alias_size_in_bytes without donation")
    expect(stats.temp_size_in_bytes >= 0, f"found {stats.temp_size_in_bytes} bytes of temporaries")


@check(needs="plugin", number=147, since=40, seconds=60)
def memory_stats_of_donation(subject: Subject) -> None:
    """Ask for the memory of a donating program -> alias_size_in_bytes is at least the array's."""
    stats = _stats(subject, subject.compile_executable(_DONATING))
    found = stats.alias_size_in_bytes
    if found == 0 and subject.target is None and _keeps(subject):
        subject.note("tells no alias, and donates nothing, which it need not do")
        return
    at_least(found, _NBYTES, "alias_size_in_bytes")


@check(needs="plugin", number=147, since=72, seconds=60)
def peak_memory(subject: Subject) -> None:
    """Ask for the peak memory of a matrix product -> at least one array, or 0 if unknown."""
    found = _stats(subject, subject.compile_executable(_MATMUL)).peak_memory_in_bytes
    if found == 0:
        subject.note("the peak is not reported")
        return
    at_least(found, _NBYTES, "peak_memory_in_bytes")


@check(needs="plugin", number=148, seconds=60)
def stable(subject: Subject) -> None:
    """Ask twice for costs and memory -> the same; a list that moves in memory is noted."""
    executable = subject.compile_executable(_MATMUL)
    ask_twice(lambda: _costs(subject, executable), "the costs")
    subject.note_moved(_COSTS, "properties", executable=executable)
    if subject.api.has(_STATS):
        ask_twice(lambda: _stats(subject, executable), "the memory")


def _keeps(subject: Subject) -> bool:
    """Say whether an argument that the program might take over still exists after a run."""
    argument = subject.put(np.ones((_SIZE, _SIZE), np.float32))
    subject.execute(subject.compile(_DONATING), [argument])
    return not subject.call("PJRT_Buffer_IsDeleted", buffer=argument)


def _costs(subject: Subject, executable: int) -> dict[str, object]:
    return dict(subject.call(_COSTS, executable=executable))


def _stats(subject: Subject, executable: int) -> SimpleNamespace:
    stats: SimpleNamespace = subject.call(_STATS, executable=executable)
    return stats
