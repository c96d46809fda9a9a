"""Steppers: programs whose results are arguments of their next call, such as a KV cache.

Owns which results are carried, what is fixed, and programs on several devices; the compiled call
path keeps the state of a program on one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import PjrtError
from pjrt_hub.running.buffer.buffer import Buffer
from pjrt_hub.running.capi import hotpath
from pjrt_hub.running.device.device import refuse_pickle
from pjrt_hub.running.executable.argument import put, require

if TYPE_CHECKING:
    from pjrt_hub.running.device.device import Device
    from pjrt_hub.running.program.signature import Signature


class Stepper(hotpath.Stepper):
    """A program with a state: `step = exe.stepper(carry={1: 0})`, then `step(token)`.

    Each call takes what the last one returned for the carried parameters. If the program donates
    them, the state stays in its memory. Threads take steps one after the other.

    Attributes:
        executable: the executable that it runs.
        carry: the parameter that each carried result becomes.
    """

    __module__ = "pjrt_hub"
    __reduce__ = refuse_pickle
    carry: dict[int, int]

    @property
    def state(self) -> dict[int, Any]:
        """The buffer of each carried parameter, which the next step takes.

        On several devices it is a row of buffers. Where the program donates the parameter, that
        step consumes them; `snapshot` copies them.

        Raises:
            ValueError: there is no state.
        """
        return self._by_parameter(tuple)

    def reset(self, state: Mapping[int, Any]) -> None:
        """Set the state.

        Args:
            state: a Buffer or an array for each carried parameter; on several devices a row of
                them. Arrays are copied, and buffers where the program donates them, so that no
                step consumes what was given.

        Raises:
            TypeError, ValueError: a parameter is missing or not carried, or its value does not fit.
            ClosedError: a buffer was deleted. The state is then what it was, as after all errors.
        """
        if state.keys() != set(self.carry.values()):
            raise ValueError(
                f"the carried parameters are {sorted(self.carry.values())}, the state has "
                f"{sorted(state)}"
            )
        self._reset(tuple(self._put(each, state[each]) for each in self.carry.values()))

    def snapshot(self) -> dict[int, Any]:
        """Return a copy of the state, for `reset`; no step consumes it.

        Raises:
            ValueError: there is no state.
        """
        return self._by_parameter(_copy)

    def _by_parameter(self, take: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> dict[int, Any]:
        return dict(zip(self.carry.values(), self._state(take), strict=True))

    def _put(self, parameter: int, value: Any) -> Any:
        return _buffer(self.executable, parameter, value, self.executable.devices[0])

    def _refuse(self) -> NoReturn:
        raise ValueError(
            "the stepper has no state\n\nhint: step.reset(state) gives it one, as does "
            "stepper(..., state=state)"
        )

    def _note_loss(self, error: BaseException) -> None:
        error.add_note("The state was donated and is gone: step.reset(...) gives a new one.")

    def __repr__(self) -> str:
        return f"<Stepper of {self.executable!r}>"


class RowStepper(Stepper):
    """A stepper of a program on several devices, with a row of arguments for each."""

    def __init__(self, executable: Any, fixed: Mapping[int, Any]) -> None:
        self._executable = executable
        self._fixed = {each: self._put(each, row) for each, row in fixed.items()}
        self._kept: tuple[Any, ...] | None = None
        self._lock = Lock()
        self._is_used = False

    @property
    def executable(self) -> Any:
        """The executable that it runs."""
        return self._executable

    def __call__(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Take a step with a row of arguments for each device, as `execute` takes them."""
        with self._turn():
            kept = self._kept or self._refuse()
            bound = {**self._fixed, **dict(zip(self.carry.values(), kept, strict=True))}
            full = self._full(bound, rows)
            try:
                results = self._executable.execute(full)
            except PjrtError as exc:
                if any(each.is_deleted for row in kept for each in row):
                    self._kept = None
                    self._note_loss(exc)
                raise
            self._kept = tuple(tuple(row[output] for row in results) for output in self.carry)
        given = [[each for n, each in enumerate(row) if n not in self.carry] for row in results]
        return [row[0] if len(row) == 1 else tuple(row) for row in given]

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Use the state, as the only thread; refuse a use within a use."""
        with self._lock:
            if self._is_used:
                raise RuntimeError("this thread is inside a step of the same stepper")
            self._is_used = True
            try:
                self._executable._require_open()
                yield
            finally:
                self._is_used = False

    def _full(
        self, bound: Mapping[int, Sequence[Any]], rows: Sequence[Sequence[Any]]
    ) -> list[list[Any]]:
        """Return the rows of the program from those that a step is given."""
        devices, count = len(self._executable.devices), len(self._executable.signature.parameters)
        fed, made = count - len(bound), list[list[Any]]()
        if len(rows) != devices:
            raise TypeError(f"a step takes {devices} rows, one a device; {len(rows)} given")
        for device, row in enumerate(rows):
            if len(row) != fed:
                raise TypeError(f"a step takes {fed} argument{'s'[: fed != 1]}, {len(row)} given")
            rest = iter(row)
            made.append([bound[n][device] if n in bound else next(rest) for n in range(count)])
        return made

    def _put(self, parameter: int, value: Any) -> Any:
        devices = self._executable.devices
        if not _is_row(value, len(devices)):
            raise TypeError(f"parameter {parameter} needs a row of {len(devices)}, one a device")
        row = list[Buffer]()
        for each, device in zip(value, devices, strict=True):
            row.append(_buffer(self._executable, parameter, each, device))
            require(self._executable, parameter, row[-1], device)
        return tuple(row)

    def _reset(self, row: tuple[Any, ...]) -> None:
        with self._turn():
            self._kept = row

    def _state(self, take: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> tuple[Any, ...]:
        with self._turn():
            return take(self._kept or self._refuse())


def make(
    executable: Any,
    carry: Mapping[int, int],
    fixed: Mapping[int, Any],
    state: Mapping[int, Any] | None,
) -> Stepper:
    """Serve `LoadedExecutable.stepper`."""
    signature: Signature = executable.signature
    _check(signature, carry, fixed)
    executable._require_open()
    if len(executable.devices) == 1:
        step, [device] = Stepper(), executable.devices
        held = ((each, _buffer(executable, each, fixed[each], device)) for each in fixed)
        step._bind(executable, tuple(carry.items()), tuple(held))
    else:
        step = RowStepper(executable, fixed)
    step.carry = dict(carry)
    if state is not None:
        step.reset(state)
    return step


def _check(signature: Signature, carry: Mapping[int, int], fixed: Mapping[int, Any]) -> None:
    takes, gives = signature.parameters, signature.outputs
    if signature.open:
        raise ValueError("the plugin does not tell how many arguments the program takes")
    if not carry:
        raise ValueError("no result is carried\n\nhint: exe.bind(a, b) keeps arguments alone")
    for result, parameter in carry.items():
        if result not in range(len(gives)) or parameter not in range(len(takes)):
            raise ValueError(
                f"result {result} cannot become parameter {parameter}: the program has "
                f"{len(gives)} result(s) and {len(takes)} parameter(s)"
            )
        told, wanted = gives[result], takes[parameter]
        differ = told.code and wanted.code and told.code != wanted.code
        if differ or (None not in (told.shape, wanted.shape) and told.shape != wanted.shape):
            raise ValueError(f"result {result} is {told}, and parameter {parameter} takes {wanted}")
        if told.dynamic or wanted.dynamic:
            raise ValueError(f"result {result} is {told}, whose size changes from call to call")
    wrong = [each for each in fixed if each not in range(len(takes))]
    twice = [each for each in fixed if each in carry.values()]
    if wrong or twice or len(set(carry.values())) != len(carry):
        raise ValueError(
            f"what is carried or fixed, {[*carry.values(), *fixed]}, must be different parameters "
            f"of the program's {len(takes)}"
        )
    if donated := [each for each in fixed if each in signature.donated]:
        raise ValueError(
            f"the program donates parameter {donated[0]}, which it can take only once, so that it "
            "cannot be fixed"
        )


def _buffer(executable: Any, parameter: int, value: Any, device: Device) -> Buffer:
    if not isinstance(value, Buffer):
        return put(executable, parameter, value, device)[0]
    return _copy(value) if parameter in executable.signature.donated else value


def _is_row(value: Any, length: int) -> bool:
    try:
        return not isinstance(value, Buffer) and len(value) == length
    except TypeError:  # A scalar has no length.
        return False


def _copy(value: Any) -> Any:
    if not isinstance(value, Buffer):
        return tuple(map(_copy, value))
    return value.copy_to_memory(value.memory)
