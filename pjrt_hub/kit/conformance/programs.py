"""Programs that several checks run, as StableHLO text, and work that takes a while.

Owns no verdicts. What a single check runs stands beside it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pjrt_hub.errors import PjrtError
from pjrt_hub.kit.conformance.finding import Unsupported, equal
from pjrt_hub.running.program.compile_options import CompileOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pjrt_hub.kit.conformance.subject import Subject

ADD = """
func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %sum = stablehlo.add %a, %b : tensor<4xf32>
  return %sum : tensor<4xf32>
}
"""

DOUBLE = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %sum = stablehlo.add %a, %a : tensor<4xf32>
  return %sum : tensor<4xf32>
}
"""

#: Of what `SLOW` is run on, and gives.
SLOW_SHAPE = "16x16xf32"
#: The identity, after as many products of matrices as the second argument says.
SLOW = """
func.func @main(%a: tensor<16x16xf32>, %rounds: tensor<i32>) -> tensor<16x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<16x16xf32>
    cond {
      %more = stablehlo.compare LT, %i, %rounds : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %y = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0]
          : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
      stablehlo.return %j, %y : tensor<i32>, tensor<16x16xf32>
    }
  return %r#1 : tensor<16x16xf32>
}
"""

#: The same for plugins without loops.
_LONG = """
func.func @main(%a: tensor<16x16xf32>, %rounds: tensor<i32>) -> tensor<16x16xf32> {{
{products}
  return %x{last} : tensor<16x16xf32>
}}
"""
_PRODUCT = """\
  %x{number} = stablehlo.dot_general %{left}, %a, contracting_dims = [1] x [0]
      : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>"""
_PRODUCTS = 2000

_ROWS = 16
_SECONDS = 0.1
_MOST_ROUNDS = 4**9

#: What `slow_rounds` found, by the plugin's table.
_rounds: dict[int, int] = {}


def slow_program(subject: Subject) -> int:
    """`SLOW` as a loaded executable, for plugins without loops as a long list of products."""
    try:
        return subject.compile(SLOW)
    except Unsupported:
        return subject.compile(many_products())


def many_products() -> str:
    """`SLOW` without a loop: always as many products, whatever its second argument says."""
    names = ["a", *(f"x{number}" for number in range(_PRODUCTS))]
    lines = (_PRODUCT.format(number=i, left=names[i]) for i in range(_PRODUCTS))
    return _LONG.format(products="\n".join(lines), last=_PRODUCTS - 1)


def slow_arguments(subject: Subject, rounds: int = 0) -> list[int]:
    """What `SLOW` is run on: an identity matrix, so that the result is one too.

    Args:
        subject: the plugin.
        rounds: of products; by default as many as take a while.
    """
    import numpy as np

    count = np.array(rounds or slow_rounds(subject), np.int32)
    return [subject.put(np.eye(_ROWS, dtype=np.float32)), subject.put(count)]


def slow_rounds(subject: Subject) -> int:
    """How many products take a while: few in an interpreter, else thousands."""
    if (known := _rounds.get(subject.api.address)) is not None:
        return known
    executable, rounds = slow_program(subject), 1
    _time(subject, executable, rounds)  # the first run of anything takes longer
    while rounds < _MOST_ROUNDS and _time(subject, executable, rounds) < _SECONDS:
        rounds *= 4
    return _rounds.setdefault(subject.api.address, rounds)


def _time(subject: Subject, executable: int, rounds: int) -> float:
    arguments = slow_arguments(subject, rounds)
    begin = time.monotonic()
    (result,) = subject.execute(executable, arguments)
    subject.await_(subject.ready(result))
    return time.monotonic() - begin


def slow(subject: Subject) -> int:
    """The result of `SLOW`, most likely still pending."""
    (result,) = subject.execute(slow_program(subject), slow_arguments(subject))
    return result


def is_late(subject: Subject, wait: Callable[[int, int], object]) -> bool:
    """Whether work still goes on where it is said to have ended; looks three times where it does.

    Args:
        subject: the plugin.
        wait: returns once the plugin says that the work has ended; called with the output and with
            the event of completion.
    """
    executable, arguments = slow_program(subject), slow_arguments(subject)
    return all(_outlasts(subject, executable, arguments, wait) for _ in range(3))


def _outlasts(
    subject: Subject, executable: int, arguments: list[int], wait: Callable[[int, int], object]
) -> bool:
    """Whether reading the output takes longer than the run until `wait` returned.

    Where the plugin is right it takes microseconds, so that a busy machine cannot turn the scale.
    """
    begin = time.monotonic()
    ((output,),), (complete,) = subject.launch(executable, [arguments], events=True)
    wait(output, complete)
    said = time.monotonic()
    right = is_identity(subject, output)
    return not right or time.monotonic() - said > max(said - begin, _SECONDS / 4)


def is_identity(subject: Subject, buffer: int) -> bool:
    """Whether a buffer is, once it is ready, what `SLOW` gives."""
    import numpy as np

    return bool(np.array_equal(subject.get(buffer), np.eye(_ROWS, dtype=np.float32)))


def adds(subject: Subject, executable: int, device: int = 0) -> None:
    """Fails unless a loaded `ADD` gives the exact values, on the first device or the one given."""
    import numpy as np

    place = {"device": device} if device else {}
    a, b = np.arange(4, dtype=np.float32), np.full(4, 0.5, np.float32)
    (total,) = subject.execute(executable, [subject.put(each, **place) for each in (a, b)])
    equal(subject.get(total).tolist(), [0.5, 1.5, 2.5, 3.5], "a + b")


def compiled(
    subject: Subject, program: str | bytes = ADD, options: CompileOptions | None = None
) -> int:
    """A program as a `PJRT_Executable`: for the machine that is described, else for the client.

    Args:
        subject: the plugin.
        program: as for `Subject.compile`.
        options: by default one replica on one device.
    """
    chosen = options or CompileOptions()
    if subject.target is None:
        return subject.executable(subject.compile(program, options=chosen.serialize()))
    try:
        return ahead(subject, program, chosen)
    except PjrtError as exc:
        if "autotun" not in exc.message:
            raise
        # There is no device to time kernels on.
        return ahead(subject, program, replace(chosen, flags={"xla_gpu_autotune_level": 0}))


def ahead(
    subject: Subject,
    program: str | bytes = ADD,
    options: CompileOptions | None = None,
    topology: int = 0,
) -> int:
    """A program as a `PJRT_Executable`, compiled without a client.

    Args:
        subject: the plugin.
        program: as for `Subject.compile`.
        options: by default one replica on one device.
        topology: that it is for; 0 for the subject's.
    """
    code = subject.written(program) if isinstance(program, str) else program
    made = subject.call(
        "PJRT_Compile",
        topology=topology or subject.topology,
        program={"code": code, "format": "mlir"},
        compile_options=(options or CompileOptions()).serialize(),
    )
    return subject.own("Executable", made)
