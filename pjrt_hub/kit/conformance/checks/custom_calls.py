"""Custom calls: handlers of XLA FFI that programs call (area extensions)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pjrt_hub.errors import NotFoundError, PjrtError
from pjrt_hub.kit.conformance.check import check
from pjrt_hub.kit.conformance.finding import Unsupported, equal
from pjrt_hub.kit.conformance.programs import DOUBLE
from pjrt_hub.kit.conformance.refusal import GIVEN_ERROR, expect_given_error, expect_refusal
from pjrt_hub.kit.conformance.subject import Subject
from pjrt_hub.running.capi import custom_calls, table

_INTERNAL = table.ENUMS["PJRT_Error_Code"]["PJRT_Error_Code_INTERNAL"]
#: The program calls this name.
_HANDLER = "pjrt_hub.conformance.double"
#: On these platforms, in XLA FFI's words, programs can call handlers of the host.
_WITH_HANDLERS = ("Host", "CUDA", "ROCM")


@check(area="extensions", extension="FFI", number=17)
def custom_call(subject: Subject) -> None:
    """Register a handler, run a program that calls it -> one call, and its values on the host."""
    calls: list[str] = []
    _register(subject, _HANDLER, lambda frame: calls.append(_double(frame)))
    try:
        found = _run_custom_call(subject, _HANDLER)
    except PjrtError as exc:
        if _platform(subject) in _WITH_HANDLERS:
            raise
        raise Unsupported(exc.message) from exc
    equal(len(calls), 1, "calls of the handler in one run")
    if _platform(subject) == "Host":
        equal(found, [0, 2, 4, 6], "what the handler wrote")


@check(area="extensions", extension="FFI", number=17)
def user_data(subject: Subject) -> None:
    """Add data of a registered type to an execute context -> the handler finds it."""
    node, name = subject.extension("FFI"), "pjrt_hub.conformance.data"
    context = subject.call("PJRT_ExecuteContext_Create")
    try:
        kind = node.call("PJRT_FFI_Type_Register", type_name=name, type_info={})
        node.call("PJRT_FFI_UserData_Add", context=context, user_data={"type_id": kind, "data": 42})
        seen: list[int | None] = []

        def handle(frame: custom_calls.Frame) -> None:
            seen.append(frame.user_data(kind))
            _double(frame)

        _register(subject, name, handle)
        _run_custom_call(subject, name, context=context)
    finally:
        subject.call("PJRT_ExecuteContext_Destroy", context=context)
    equal(seen, [42], "the data that the handler found")


@check(area="extensions", extension="FFI", number=17)
def second_handler(subject: Subject) -> None:
    """Register two handlers by one name -> one of them is called; which one is noted."""
    name, called = "pjrt_hub.conformance.twice", list[str]()

    def handler(which: str) -> custom_calls.PythonEntry:
        return _entry_of(lambda frame: called.append(which + _double(frame)))

    _hand_over(subject, name, handler("first"))
    try:
        _hand_over(subject, name, handler("second"))
    except PjrtError as exc:
        subject.note(f"a second handler is refused: {exc.message}")
    else:
        subject.note("a second handler is taken without an error")
    _run_custom_call(subject, name)
    equal(len(called), 1, "handlers called in one run")
    subject.note(f"afterwards the {called[0]} handler is called")


@check(area="extensions", extension="FFI", number=17)
def unknown_custom_call(subject: Subject) -> None:
    """Run a program that calls an unregistered handler -> an error, and no crash."""
    expect_refusal(
        subject,
        lambda: _run_custom_call(subject, "pjrt_hub.conformance.nobody"),
        "a custom call of a handler that nobody registered",
        code=NotFoundError.code,
    )


@check(area="extensions", extension="FFI", number=91)
def failing_custom_call(subject: Subject) -> None:
    """Let a custom call fail in the first of two runs -> only that run fails, with its text."""
    name = "pjrt_hub.conformance.fails_once"
    failures = [(GIVEN_ERROR["error_code"], GIVEN_ERROR["error_message"].encode())]
    _hand_over(subject, name, lambda _: failures.pop() if failures else None)
    expect_given_error(
        subject, lambda: _run_custom_call(subject, name), "a run whose custom call fails"
    )
    _run_custom_call(subject, name)
    subject.usable()


def _platform(subject: Subject) -> str:
    """Return XLA FFI's name of the client's platform."""
    name: str = subject.call("PJRT_Client_PlatformName", client=subject.client).decode()
    return {"cpu": "Host", "gpu": "CUDA"}.get(name, name.upper())


def _register(subject: Subject, name: str, handle: Callable[[custom_calls.Frame], object]) -> None:
    _hand_over(subject, name, _entry_of(handle))


def _hand_over(subject: Subject, name: str, entry: custom_calls.PythonEntry) -> None:
    subject.extension("FFI").call(
        "PJRT_FFI_Register_Handler",
        target_name=name,
        platform_name=_platform(subject),
        handler=custom_calls.entry(entry, 0),
        traits=0,
    )


def _entry_of(handle: Callable[[custom_calls.Frame], object]) -> custom_calls.PythonEntry:
    def run(address: int) -> tuple[int, bytes] | None:
        try:
            handle(custom_calls.Frame(address))
        except Exception as exc:  # No exception may reach the plugin.
            return _INTERNAL, str(exc).encode()
        return None

    return run


def _double(frame: custom_calls.Frame) -> str:
    """Write twice the argument into the result, where both are on the host."""
    (argument,), (result,) = frame.arguments(), frame.results()
    if frame.stream() is None:
        source, target = (
            np.frombuffer(custom_calls.memory(each.address, 16), np.float32)
            for each in (argument, result)
        )
        target[:] = 2 * source
    return ""


def _run_custom_call(subject: Subject, name: str, **options: int) -> list[float]:
    program = DOUBLE.replace(
        "stablehlo.add %a, %a : tensor<4xf32>",
        f"stablehlo.custom_call @{name}(%a) {{api_version = 4 : i32}} : (tensor<4xf32>) -> "
        "tensor<4xf32>",
    )
    executable = subject.compile(program)
    argument = subject.put(np.arange(4, dtype=np.float32))
    (output,) = subject.execute(executable, [argument], **options)
    return [float(each) for each in subject.get(output)]
