"""Infeed and outfeed: compiled programs that would wait for the host for ever.

Owns finding them in the optimized HLO; must not compile.
"""

from __future__ import annotations

from pjrt_hub.errors import UnimplementedError
from pjrt_hub.running.capi import wire
from pjrt_hub.running.program import hlo

_FEEDS = (b"infeed", b"outfeed")


def refuse(code: bytes, form: str) -> None:
    """Refuses a program with an infeed or outfeed: the PJRT C API has no function to answer it.

    Args:
        code: what `Signature.of_optimized` takes.
        form: its format.

    Raises:
        UnimplementedError: there is one, so that a call would never end, nor hear Ctrl-C.
    """
    if not any(feed in code for feed in _FEEDS):  # a walk takes long, and few have one
        return
    modules = [memoryview(code)]
    if form == "hlo_with_config":
        modules = _parts(modules, hlo.WITH_CONFIG_MODULE)
    instructions = _parts(_parts(modules, hlo.MODULE_COMPUTATIONS), hlo.COMPUTATION_INSTRUCTIONS)
    for opcode in _parts(instructions, hlo.INSTRUCTION_OPCODE):
        if opcode in _FEEDS:
            raise UnimplementedError(
                f"the program has an {bytes(opcode).decode()}, which would wait for ever: the PJRT "
                "C API has no function that feeds it",
                hint="exchange values by arguments and results, by a custom call, or by "
                "stablehlo.send and stablehlo.recv where the plugin compiles these",
            )


def _parts(messages: list[memoryview], number: int) -> list[memoryview]:
    return [
        value
        for message in messages
        for each, value in wire.fields(message)
        if each == number and isinstance(value, memoryview)
    ]
