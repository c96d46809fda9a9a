"""Steps of an exported function with a state, by the names of its arguments and results.

Owns what the names mean; `running/executable/stepper` takes the steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pjrt_hub.frameworks.exported import argument
from pjrt_hub.frameworks.exported.tree import LEAF, Node
from pjrt_hub.running.buffer.buffer import Buffer

if TYPE_CHECKING:
    from pjrt_hub.frameworks.exported.aval import Aval
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
        types: tuple[Sequence[Aval], Sequence[Aval]],
        positions: Mapping[int, int],
        brought: Mapping[int, Any],
        bound: Sequence[Buffer],
        carry: Mapping[str, str],
        fixed: Mapping[str, Any],
        state: Mapping[str, Any] | None,
    ) -> None:
        """Find what the names mean, as `Exported.stepper` says.

        `types` are those of the inputs and of the outputs, whose sizes are all numbers; `positions`
        are those of the inputs among what the executable takes, and `brought` is what it takes
        beside them; `bound` are the first inputs, unless they are fixed.
        """
        self._function = function
        self._types, outputs = types
        self._positions = positions
        self._inputs = _by_path(function.input_nodes())
        results = _by_path(function.out_tree.nodes("result"))
        self._carried = tuple(carry.values())
        if not carry:
            raise ValueError("no result is carried\n\nhint: f.bind(a, b) keeps arguments alone")
        _refuse_overlap(_find(results, each) for each in carry)
        _refuse_overlap(_find(self._inputs, each) for each in (*carry.values(), *fixed))
        pairs = dict[int, int]()
        for result, parameter in carry.items():
            given, taken = _find(results, result), _find(self._inputs, parameter)
            if len(given.leaves) != len(taken.leaves):
                raise ValueError(
                    f"{result} has {len(given.leaves)} leaves, and {parameter} {len(taken.leaves)}"
                )
            pairs |= zip(given.leaves, taken.leaves, strict=True)
        self._pairs = pairs
        held = {**dict(enumerate(bound)), **self._leaves(fixed)}
        self._check(outputs, held, executable.signature.donated)
        taken_by_name = {*pairs.values(), *held}
        self._fed = [each for each in range(len(function.inputs)) if each not in taken_by_name]
        fixed_at = {positions[each]: value for each, value in held.items() if each in positions}
        places = {result: positions[index] for result, index in pairs.items()}
        self._stepper: Stepper = executable.stepper(places, {**brought, **fixed_at})
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
        row = [self._array(*each) for each in used]
        return self._stepper(*row)

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
        _refuse_overlap(_find(self._inputs, each) for each in state)
        leaves, carried = self._leaves(state), set(self._pairs.values())
        if leaves.keys() != carried:
            wanted, found = (
                ", ".join(self._function.input_paths[each] for each in sorted(some))
                for some in (carried, leaves)
            )
            raise ValueError(
                f"the carried arguments are {wanted}; the state has {found or 'none of them'}"
            )
        self._stepper.reset({self._positions[each]: leaves[each] for each in leaves})

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of the state, for `reset`; no step consumes it.

        Raises:
            ValueError: there is no state.
        """
        return self._nested(self._stepper.snapshot())

    def _check(
        self, outputs: Sequence[Aval], held: Mapping[int, Any], donated: Collection[int]
    ) -> None:
        """Refuse results that cannot be carried, and arguments that cannot be fixed."""
        paths = self._function.input_paths
        for result, index in self._pairs.items():
            if index not in self._positions:
                raise ValueError(f"the program does not use {paths[index]}")
            given, taken = outputs[result], self._types[index]
            if (given.element, given.dimensions) != (taken.element, taken.dimensions):
                where = self._function.output_paths[result]
                raise ValueError(f"{where} is {given}, and {paths[index]} takes {taken}")
            if index in held:
                raise ValueError(f"{paths[index]} is bound, so that it cannot be carried")
        for index in held:
            if self._positions.get(index) in donated:
                raise ValueError(
                    f"the program donates {paths[index]}, which it can take only once, so that it "
                    "cannot be fixed"
                )

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
        return argument.host_array(value, self._types[index], self._function, index)

    def __repr__(self) -> str:
        return f"<ExportedStepper of {self._function.function_name}>"


def _by_path(nodes: Iterable[Node]) -> dict[str, Node]:
    return {each.path: each for each in nodes}


def _refuse_overlap(nodes: Iterable[Node]) -> None:
    """Refuse names of which one means what another means, too."""
    named = dict[int, str]()
    for node in nodes:
        for leaf in node.leaves:
            if leaf in named:
                raise ValueError(f"{named[leaf]} and {node.path} overlap: each may be named once")
            named[leaf] = node.path


def _find(places: Mapping[str, Node], name: str) -> Node:
    if name not in places:
        known = [path for path, place in places.items() if place.tree.kind == LEAF]
        shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
        raise ValueError(f"there is no {name!r}\n\nhint: there are {shown}, and what holds them")
    return places[name]
