"""The text of a program: what its outputs need, each value once and after those that it needs."""

import re

from minijit.tensor import type_of


def module(name, parameters, outputs):
    """Write a module whose @main takes the parameters and give the outputs."""
    names = {each.number: f"%arg{i}" for i, each in enumerate(parameters)}
    lines = []
    for each in ordered(outputs):
        if each.number in names:
            continue
        if each.operation is None:
            raise TypeError(f"{name} uses {each}, a value that another trace left behind")
        names[each.number] = f"%{len(lines)}"
        text = each.operation % tuple(names[one.number] for one in each.inputs)
        takes = ", ".join(map(type_of, each.inputs))
        lines.append(f"    %{len(lines)} = {text} : ({takes}) -> {type_of(each)}")
    takes = ", ".join(f"%arg{i}: {type_of(each)}" for i, each in enumerate(parameters))
    types = ", ".join(map(type_of, outputs))
    values = ", ".join(names[each.number] for each in outputs)
    lines.append(f"    return {values} : {types}" if outputs else "    return")
    body = "\n".join(lines)
    symbol = re.sub(r"\W", "_", name)
    return f"module @{symbol} {{\n  func.func @main({takes}) -> ({types}) {{\n{body}\n  }}\n}}\n"


def ordered(outputs):
    """List the values that outputs are made of, in the order in which they were traced."""
    found, waiting = {}, list(outputs)
    while waiting:
        each = waiting.pop()
        if each.number not in found:
            found[each.number] = each
            waiting += each.inputs
    return [found[number] for number in sorted(found)]
