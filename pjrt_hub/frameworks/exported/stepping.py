"""Steps of an exported function with a state, by the names of its arguments and results.

Owns what the names mean; `running/executable/stepper` takes the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pjrt_hub.frameworks.exported import argument
from pjrt_hub.frameworks.exported.tree import LEAF, Node
from pjrt_hub.running.buffer.buffer import Buffer

if TYPE_CHECKING:
    from pjrt_hub.frameworks.exported.function import ExportedFunction
    from pjrt_hub.running.executable.loaded_executable import LoadedExecutable
    from pjrt_hub.running.executable.stepper import Stepper


class ExportedStepper:
    """A function with a state: `step = function.stepper(carry={"result[1]": "args[1]"})`.

    `step(token)` takes, leaf by leaf, the arguments that are neither carried nor fixed, and gives
    the results that are not carried: one, or a tuple of them. See `LoadedExecutable.stepper`.
    """

    __module__ = "pjrt_hub"

    def __init__(
        self,
        function: ExportedFunction,
        executable: LoadedExecutable,
        positions: Mapping[int, int],
        brought: Mapping[int, Any],
        carry: Mapping[str, str],
        fixed: Mapping[str, Any],
        state: Mapping[str, Any] | None,
    ) -> None:
        """Find what the names mean, as `Exported.stepper` says.

        `positions` are those of the inputs among what the executable takes, and `brought` is what
        it takes beside them.
        """
        self._function = function
        self._positions = positions
        self._inputs = _by_path(function.input_nodes())
        results = _by_path(function.out_tree.nodes("result"))
        self._carried = tuple(carry.values())
        pairs = dict[int, int]()
        for result, parameter in carry.items():
            given, taken = _find(results, result), _find(self._inputs, parameter)
            if len(given.leaves) != len(taken.leaves):
                raise ValueError(
                    f"{result} has {len(given.leaves)} leaves, and {parameter} {len(taken.leaves)}"
                )
            pairs |= zip(given.leaves, taken.leaves, strict=True)
        self._pairs = pairs
        held = self._leaves(fixed)
        for index in pairs.values():
            if index not in positions:
                raise ValueError(f"the program does not use {function.input_paths[index]}")
        taken_by_name = {*pairs.values(), *held}
        self._fed = [each for each in range(len(function.inputs)) if each not in taken_by_name]
        fixed_at = {positions[each]: value for each, value in held.items() if each in positions}
        self._stepper: Stepper = executable.stepper(
            {result: positions[index] for result, index in pairs.items()}, {**brought, **fixed_at}
        )
        if state is not None:
            self.reset(state)

    def __call__(self, *arguments: Any) -> Any:
        """Take a step without waiting for the results.

        Args:
            arguments: buffers or arrays, a leaf each.

        Raises:
            TypeError, ValueError, ClosedError, PjrtError: as for `Stepper`.
        """
        if len(arguments) != len(self._fed):
            paths = ", ".join(self._function.input_paths[each] for each in self._fed)
            raise TypeError(f"a step takes {paths or 'no argument'}; {len(arguments)} were given")
        pairs = zip(self._fed, arguments, strict=True)
        used = ((index, value) for index, value in pairs if index in self._positions)
        return self._stepper(*(self._array(*each) for each in used))

    @property
    def state(self) -> dict[str, Any]:
        """The carried arguments by name, nested as the function takes them.

        Where the program donates them, the next step consumes the buffers; `snapshot` copies them.

        Raises:
            ValueError: there is no state.
        """
        return self._nested(self._stepper.state)

    def reset(self, state: Mapping[str, Any]) -> None:
        """Set the state.

        Args:
            state: all carried arguments by name, whole or in parts. Arrays are copied, and buffers
                where the program donates them.

        Raises:
            TypeError, ValueError: an argument is missing or not carried, or its value does not fit.
            ClosedError: a buffer was deleted.
        """
        leaves = self._leaves(state)
        self._stepper.reset({self._positions.get(each, -1): leaves[each] for each in leaves})

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of the state, for `reset`; no step consumes it.

        Raises:
            ValueError: there is no state.
        """
        return self._nested(self._stepper.snapshot())

    def _nested(self, state: Mapping[int, Any]) -> dict[str, Any]:
        made = {}
        for name in self._carried:
            place = self._inputs[name]
            leaves = (state[self._positions[each]] for each in place.leaves)
            made[name] = place.tree.maker({})(leaves)
        return made

    def _leaves(self, values: Mapping[str, Any]) -> dict[int, Any]:
        """Return the leaves of values that are given by name, by their numbers."""
        found = dict[int, Any]()
        for name, value in values.items():
            place, leaves = _find(self._inputs, name), list[Any]()
            place.tree.flatten(value, leaves, name)
            found |= {
                index: self._array(index, leaf)
                for index, leaf in zip(place.leaves, leaves, strict=True)
            }
        return found

    def _array(self, index: int, value: Any) -> Any:
        if isinstance(value, Buffer):
            return value
        aval = self._function.inputs[index]
        if not aval.is_static:
            return value
        return argument.host_array(value, aval, self._function, index)

    def __repr__(self) -> str:
        return f"<ExportedStepper of {self._function.function_name}>"


def _by_path(nodes: Iterable[Node]) -> dict[str, Node]:
    return {each.path: each for each in nodes}


def _find(places: Mapping[str, Node], name: str) -> Node:
    if name not in places:
        known = [path for path, place in places.items() if place.tree.kind == LEAF]
        shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
        raise ValueError(f"there is no {name!r}\n\nhint: there are {shown}, and what holds them")
    return places[name]
