"""An exported function on a client: called with nested values, by place and by name.

Owns checking arguments against the function's types and compiling once for each signature; must
not read files or choose a plugin.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pjrt_hub.base.fork import Lock, cached_property
from pjrt_hub.base.frames import hide_below
from pjrt_hub.errors import ClosedError, UnknownError
from pjrt_hub.frameworks.exported import argument, lapack, obstacle, sharding, specialisation
from pjrt_hub.frameworks.exported.aval import Aval, solve
from pjrt_hub.frameworks.exported.function import Constant, ExportedFunction, Weight
from pjrt_hub.frameworks.exported.tree import LEAF, Tree, Types
from pjrt_hub.running.buffer.buffer import Buffer
from pjrt_hub.running.capi.handle import Closing
from pjrt_hub.running.compilation import compile_cache

if TYPE_CHECKING:
    from pjrt_hub.frameworks.exported.stepping import ExportedStepper
    from pjrt_hub.running.client.client import Client
    from pjrt_hub.running.compilation.policy import CompileCache
    from pjrt_hub.running.device.device import Device
    from pjrt_hub.running.executable.loaded_executable import LoadedExecutable
    from pjrt_hub.running.program.compile_options import CompileOptions
    from pjrt_hub.running.program.program import Program

_BUFFERS = {Buffer}
_Sizes = tuple[tuple[str, int], ...]


class _Ready(NamedTuple):
    """A signature's executable, and what it takes beside the caller's values."""

    executable: LoadedExecutable
    inputs: tuple[Aval, ...]  # The inputs, whose sizes are all numbers.
    device: Device  # The device that arguments go to.
    template: tuple[Any, ...]  # What the program takes, with None where an input belongs.
    slots: tuple[tuple[int, int], ...]  # Each position that is None, and the number of its input.
    split: sharding.Split | None = None  # How arguments and results are split over several devices.


class Exported(Closing):
    """A function that was exported to a file, ready to be called.

    Values are nested as the exporter's were; leaves are Buffers of the client, or anything that
    numpy makes an array of. Results come back nested the same way, with Buffers as leaves, at once:
    reading one waits. It compiles at the first call, for symbolic dimensions once for each shape.

    Attributes:
        function: what the file says about itself.
        client: where it runs.
    """

    __module__ = "pjrt_hub"

    def __init__(
        self,
        function: ExportedFunction,
        client: Client,
        *,
        compile_options: CompileOptions | None = None,
        dimensions: Mapping[str, int] | None = None,
        types: Types | None = None,
        cache: bool | CompileCache | None = None,
        isolated: bool | None = None,
        owns_client: bool = False,
    ) -> None:
        """Check whether the client's plugin can run it, as `load_exported` says; compile nothing.

        `owns_client` says whether `close` closes the client.
        """
        client._require_open()
        obstacle.refuse(function, client)
        self.function = function
        self.client = client
        self._options = compile_options
        self._given = dict(dimensions or {})
        self._types = dict(types or {})
        self._cache = cache
        self._isolated = isolated
        self._owns_client = owns_client
        self._bound: tuple[Buffer, ...] = ()
        self._taken = 0
        self._ready: dict[_Sizes, _Ready] = {}
        self._brought: dict[Device, dict[Weight | Constant, Buffer]] = {}
        self._lock = Lock()
        self._closed = threading.Event()
        self._make = function.out_tree.maker(self._types)
        positional, self._named = function.in_tree.children
        self._positional = positional.children
        self._plain = not self._named.children and all(c.kind == LEAF for c in self._positional)
        self._symbolic = tuple(
            index for index, each in enumerate(function.inputs) if not each.is_static
        )

    @property
    def inputs(self) -> tuple[Aval, ...]:
        """The type of each leaf of the arguments."""
        return self.function.inputs

    @property
    def outputs(self) -> tuple[Aval, ...]:
        """The type of each leaf of the result."""
        return self.function.outputs

    @property
    def in_tree(self) -> Tree:
        """How the arguments are nested: the positional ones, and those by name."""
        return self.function.in_tree

    @property
    def out_tree(self) -> Tree:
        """How the result is nested."""
        return self.function.out_tree

    @property
    def custom_calls(self) -> tuple[str, ...]:
        """The functions that its program calls by name, on all its platforms."""
        return self.function.custom_calls

    @property
    def function_name(self) -> str:
        """The name of the exported function."""
        return self.function.function_name

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that it was exported for; empty if the file names none."""
        return self.function.platforms

    @property
    def stablehlo_version(self) -> str:
        """The StableHLO version of its program, "1.8.0"; empty if the program has none."""
        return self.function.stablehlo_version

    @property
    def calling_convention_version(self) -> int | None:
        """The calling convention of jax.export; None for other exporters."""
        return self.function.calling_convention_version

    @property
    def nr_devices(self) -> int:
        """How many devices it was exported for."""
        return self.function.nr_devices

    @hide_below
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it without waiting for the results.

        Raises:
            TypeError: the number, nesting or element type of arguments is wrong; the message names
                the place.
            ValueError: the shape of an argument is wrong.
            NotRunnableError: symbolic dimensions cannot be made numbers here.
            PjrtError: the plugin cannot compile or run it.
            ClosedError: it was closed, or an argument was.
        """
        leaves = self._leaves(args, kwargs)
        ready = self._ready_for(leaves)
        row = list(ready.template)
        for position, index in ready.slots:
            row[position] = leaves[index]
        if ready.split is not None:
            return self._make(iter(self._call_split(row, ready, ready.split)))
        if set(map(type, row)) != _BUFFERS:
            self._put(row, ready)
        outputs: tuple[Buffer, ...] = ready.executable(*row, simplify=False)
        return self._make(iter(outputs))

    def bind(self, *args: Any) -> Exported:
        """Return a function whose first arguments, such as weights, are moved to the device once.

        It shares what is compiled; closing either closes both.

        Args:
            *args: the first positional arguments, nested as the function takes them.

        Raises:
            TypeError: there are more than the function takes, or the nesting or element type of one
                is wrong.
            ValueError: the shape of one is wrong.
        """
        if len(args) > len(self._positional):
            raise TypeError(
                f"{self.function_name} takes {len(self._positional)} more positional argument(s), "
                f"{len(args)} are to be bound"
            )
        leaves: list[Any] = []
        for number, (tree, value) in enumerate(
            zip(self._positional, args, strict=False), self._taken
        ):
            tree.flatten(value, leaves, f"args[{number}]")
        other = object.__new__(Exported)
        other.__dict__.update(self.__dict__)
        other._bound = (*self._bound, *self._to_buffers(leaves, len(self._bound)))
        other._positional = self._positional[len(args) :]
        other._taken = self._taken + len(args)
        return other

    def stepper(
        self,
        carry: Mapping[str, str],
        fixed: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> ExportedStepper:
        """Give it a state: results that become arguments of the next call, as of a KV cache.

        `step = f.stepper(carry={"result[1]": "args[1]"}, fixed={"args[0]": weights}, state=
        {"args[1]": cache})`, then `logits = step(token)`. Names are those of `pjrt-hub inspect`;
        the name of a container means all that it holds. The function is compiled at once, and stays
        open as long as the stepper is used.

        Args:
            carry: for each carried result the argument that it becomes.
            fixed: arguments that stay the same; what was bound stays, too.
            state: the carried arguments before the first step, as `reset` takes them.

        Raises:
            ValueError: there is no such name, a result does not fit its argument, symbolic
                dimensions have no sizes, or it was exported for several devices.
            TypeError, PjrtError, ClosedError: as for a call.
        """
        from pjrt_hub.frameworks.exported.stepping import ExportedStepper

        self.compile()
        sizes = self._given
        ready = self._prepare(tuple(sorted(sizes.items())))
        if ready.split is not None:
            raise ValueError(f"{self.function.origin} was exported for several devices")
        positions = {index: position for position, index in ready.slots}
        brought = {n: each for n, each in enumerate(ready.template) if each is not None}
        return ExportedStepper(
            self.function,
            ready.executable,
            (ready.inputs, [each.at(sizes) for each in self.outputs]),
            positions,
            brought,
            self._bound,
            carry,
            fixed or {},
            state,
        )

    @hide_below
    def compile(self, **dimensions: int) -> LoadedExecutable:
        """Compile the function before its first call.

        Args:
            **dimensions: the size of each symbolic dimension, unless given before.

        Raises:
            ValueError: a size is missing or belongs to no dimension.
            NotRunnableError: symbolic dimensions cannot be made numbers here.
            PjrtError: the plugin cannot compile it.
            ClosedError: it was closed, or its client.
        """
        wanted = {name for each in self.function.inputs for name in each.names}
        sizes = {**self._given, **dimensions}
        if sizes.keys() != wanted:
            raise ValueError(
                f"the symbolic dimensions are {sorted(wanted)}, sizes were given for "
                f"{sorted(sizes)}"
            )
        return self._prepare(tuple(sorted(sizes.items()))).executable

    def close(self) -> None:
        """Free the compiled code, and the client if it was made for this function."""
        self._closed.set()
        for ready in self._ready.values():
            ready.executable.close()
        self._ready.clear()
        self._brought.clear()
        if self._owns_client:
            self.client.close()

    def __copy__(self) -> Exported:
        return self.bind()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a loaded function belongs to its client and cannot be pickled\n\nhint: load its file "
            "in the other process; function.compile() gives an executable, which can be pickled"
        )

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        if self._plain and len(args) == len(self._positional) and not kwargs:
            return [*self._bound, *args]
        leaves = list(self._bound)
        try:
            for child, value in zip(self._positional, args, strict=True):
                child.collect(value, leaves.append)
            self._named.collect(kwargs, leaves.append)
            return leaves
        except (LookupError, TypeError, ValueError):
            del leaves[len(self._bound) :]
        argument.count(self.function.function_name, self._positional, self._named, args, kwargs)
        for number, (child, value) in enumerate(
            zip(self._positional, args, strict=True), self._taken
        ):
            child.flatten(value, leaves, f"args[{number}]")
        for key, child in zip(self._named.keys, self._named.children, strict=True):
            child.flatten(kwargs[key], leaves, key)
        return leaves

    def _put(self, row: list[Any], ready: _Ready) -> None:
        """Replace each input that is not a Buffer by a Buffer on the device."""
        for position, index in ready.slots:
            if type(row[position]) is not Buffer:
                given = row[position]
                array = argument.host_array(given, ready.inputs[index], self.function, index)
                row[position] = self.client.buffer_from_host(array, device=ready.device)

    def _call_split(self, row: list[Any], ready: _Ready, split: sharding.Split) -> list[Buffer]:
        """Run the function on several devices, with whole arrays from the host."""
        import numpy as np

        for position, index in ready.slots:
            given = np.asarray(row[position]) if type(row[position]) is Buffer else row[position]
            aval = ready.inputs[index]
            row[position] = argument.host_array(given, aval, self.function, index)
        arrays = [np.asarray(each) for each in row]
        return sharding.call(self.client, ready.executable, arrays, split)

    def _split(self, ready: _Ready, sizes: Mapping[str, int]) -> sharding.Split:
        """Return the parts of arguments and results on the devices of a mesh."""
        arguments = [each.shape if each else () for each in ready.template]
        for position, index in ready.slots:
            arguments[position] = ready.inputs[index].sizes
        results = [each.at(sizes).sizes for each in self.function.outputs]
        return sharding.split(ready.executable, arguments, results, self.function.origin)

    def _to_buffers(self, leaves: list[Any], first: int) -> Iterator[Buffer]:
        """Yield buffers of values; symbolic dimensions are checked at the call."""
        for index, leaf in enumerate(leaves, first):
            if isinstance(leaf, Buffer):
                yield leaf
            else:
                aval = self.function.inputs[index]
                yield self.client.buffer_from_host(
                    argument.host_array(leaf, aval, self.function, index)
                )

    def _ready_for(self, leaves: list[Any]) -> _Ready:
        self._require_open()
        sizes: _Sizes = ()
        if self._symbolic:
            places = argument.places(self.function, self._symbolic, leaves)
            sizes = tuple(sorted(solve(places, self._given).items()))
        ready = self._ready.get(sizes)
        return self._prepare(sizes) if ready is None else ready

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise ClosedError(f"{self.function_name} was closed")

    def _prepare(self, sizes: _Sizes) -> _Ready:
        self._require_open()
        self.client._require_open()
        with self._lock:
            if sizes in self._ready:
                return self._ready[sizes]
            function, executable = self._here, self._compile(sizes)
            device = executable.devices[0]
            template: list[Any] = []
            slots = []
            brought = self._brought_on(device)
            for each in function.arguments:
                if isinstance(each, int):
                    slots.append((len(template), each))
                    template.append(None)
                else:
                    template.append(brought[each])
            paths = function.input_paths
            executable._names = {position: paths[index] for position, index in slots}
            inputs = tuple(each.at(dict(sizes)) for each in function.inputs)
            ready = _Ready(executable, inputs, device, tuple(template), tuple(slots))
            if function.nr_devices > 1:
                ready = ready._replace(split=self._split(ready, dict(sizes)))
            self._ready[sizes] = ready
            return ready

    def _compile(self, sizes: _Sizes) -> LoadedExecutable:
        """Compile the program, or what jaxlib makes of it; log first what may go wrong."""
        function, client = self._here, self.client
        lapack.register(function.custom_calls, client)
        for doubt in obstacle.doubts(self.function, client):
            import logging

            logging.getLogger("pjrt_hub.exported").info("%s: %s", function.origin, doubt)

        def compile_program(program: Program) -> LoadedExecutable:
            return client.compile(
                program, self._options, cache=self._cache, isolated=self._isolated
            )

        needs = specialisation.needs(function, client.plugin.attributes)
        if not needs:
            try:
                return compile_program(function.program_at(dict(sizes)))
            except UnknownError as exc:  # MLIR's parser and verifier fail with this code.
                newest = obstacle.newest_stablehlo(client.plugin.attributes)
                stamp = function.program.stablehlo_version
                if stamp is None or not newest or stamp <= newest:
                    raise
                needs = [
                    f"what is newer than StableHLO {obstacle.version_text(newest)} must be written "
                    f"for that, because {client.plugin.path.name} says: {exc.message}"
                ]
        kept = compile_cache.choose(client, self._cache)
        return compile_program(
            specialisation.program(function, client.plugin.attributes, dict(sizes), needs, kept)
        )

    @cached_property
    def _here(self) -> ExportedFunction:
        """The function for the client's platform."""
        platform = obstacle.platform_for(self.function, self.client)
        return self.function.for_platform(obstacle.platform_index(self.function, platform) or 0)

    def _brought_on(self, device: Device) -> dict[Weight | Constant, Buffer]:
        """Return what the function brings beside its program, moved to a device once."""
        if device not in self._brought:
            self._brought[device] = argument.put_brought(self.function.arguments, device)
        return self._brought[device]

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs[:8])) + (", ..." if len(self.inputs) > 8 else "")
        outputs = ", ".join(map(str, self.outputs[:8])) + (", ..." if len(self.outputs) > 8 else "")
        return f"<Exported {self.function_name} ({inputs}) -> ({outputs}) on {self.client!r}>"
