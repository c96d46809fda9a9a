"""A PJRT plugin in Python: an interpreter of a little StableHLO, as pjrt-hub sees any plugin.

pip install pjrt-hub
python examples/python_plugin.py
"""

import re
from pathlib import Path

import numpy as np

from pjrt_hub.kit import authoring
from pjrt_hub.kit.authoring import Backend, Device, Executable, Signature, Slot

HELLO = Path(__file__).with_name("hello.mlir")
OPERATIONS = {"add": np.add, "multiply": np.multiply, "tanh": np.tanh, "maximum": np.maximum}
LINE = re.compile(r"(%\w+) = stablehlo\.(\w+) (.*?) : tensor<(\d+)xf32>")


class Interpreted(Executable):
    """A program as lines of (result, operation, operands)."""

    def __init__(self, text):
        self.names = re.findall(r"(%\w+): tensor", text)
        self.lines = [match.groups() for match in LINE.finditer(text)]
        self.result = re.search(r"return (%\w+)", text)[1]
        wrong = {line[1] for line in self.lines} - OPERATIONS.keys() - {"constant"}
        if wrong:
            raise NotImplementedError(f"the interpreter has no {', '.join(sorted(wrong))}")
        array = Slot.of("f32", (int(self.lines[-1][3]),))
        self.signature = Signature(parameters=(array,) * len(self.names), outputs=(array,))

    def execute(self, arguments):
        """Run the lines on each device."""
        return [[self.run(row)] for row in arguments]

    def run(self, arguments):
        """Run the lines one after the other."""
        values = dict(zip(self.names, arguments, strict=True))
        for name, operation, operands, size in self.lines:
            if operation == "constant":
                values[name] = np.full(int(size), float(operands[len("dense<") : -1]), np.float32)
            else:
                inputs = [values[operand] for operand in operands.split(", ")]
                values[name] = OPERATIONS[operation](*inputs)
        return values[self.result]


class Interpreter(Backend):
    """What a plugin's author writes: which devices there are, and how a program is compiled."""

    platform_name = "interpreter"
    platform_version = "1.0"

    def devices(self, options):
        """Two devices, to show that it can be so."""
        return [Device(i, kind="numpy") for i in range(2)]

    def compile(self, program):
        """Refuse what it cannot run, and say what it is."""
        return Interpreted(program.code.decode())


def main():
    """Run hello.mlir on it; `pjrt-hub build` makes a library of it that JAX loads, too."""
    with authoring.plugin(Interpreter()).client() as client:
        print(client)
        program = client.compile(HELLO)
        a, b = np.arange(8, dtype=np.float32), np.full(8, 0.25, dtype=np.float32)
        result = program(client.buffer_from_host(a), client.buffer_from_host(b))
        print("tanh(a * b + 1) =", np.asarray(result).round(4))
        try:
            client.compile(HELLO.read_text().replace(".tanh", ".sine"))
        except NotImplementedError as error:
            print(type(error).__name__, "of the plugin:", str(error).splitlines()[0])


if __name__ == "__main__":
    main()
