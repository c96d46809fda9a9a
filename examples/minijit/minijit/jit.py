"""The boundary: all that a framework needs of pjrt-hub stands here, and nowhere else."""

import functools
from typing import NamedTuple

import numpy as np

import pjrt_hub
from minijit.stablehlo import module
from minijit.tensor import DEFAULTS, Tensor, known, lift
from minijit.trees import flatten, unflatten

_clients = []


class CompileError(Exception):
    """A plugin refused a program.

    Attributes:
        program: its StableHLO.
    """

    def __init__(self, message, program):
        super().__init__(message)
        self.program = program


class CacheInfo(NamedTuple):
    """How many calls found their executable, and how many compiled one."""

    hits: int
    misses: int


def default_client():
    """The client of functions that have none: of the best plugin, made when it is first needed."""
    if not _clients or _clients[-1].closed:
        _clients[:] = [pjrt_hub.client(shared=True)]
    return _clients[-1]


def jit(function=None, *, client=None):
    """Compile a function once for each signature of its arguments, and then only runs it.

    Args:
        function: takes trees of arrays by position, and by keyword what is part of the program.
        client: where to run; by default on the best plugin that there is.
    """
    return Jitted(function, client) if function else functools.partial(jit, client=client)


class Jitted:
    """A function that is traced, compiled, and called on a client's device."""

    def __init__(self, function, client):
        self.__name__ = "program"  # A function without a name, such as a partial, keeps this one.
        functools.update_wrapper(self, function)
        self._function, self._client, self._compiled, self._hits = function, client, {}, 0

    def __call__(self, *arguments, **static):
        """Run it: takes numbers, arrays and buffers, give buffers, and wait for nothing."""
        leaves = []
        structure = flatten(arguments, leaves)
        if any(type(leaf) is Tensor for leaf in leaves):  # An outer function is being traced.
            return self._function(*arguments, **static)
        client = self._client or default_client()
        leaves = [x if type(x) is pjrt_hub.Buffer else array_of(x) for x in leaves]
        key = (
            client,
            structure,
            *((x.shape, x.dtype) for x in leaves),
            *(static and static_key(static)),
        )
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = self._compile(client, structure, leaves, static)
        else:
            self._hits += 1
        executable, result = found
        buffers = [x if type(x) is pjrt_hub.Buffer else client.buffer_from_host(x) for x in leaves]
        return unflatten(result, iter(executable(*buffers, simplify=False)))

    def cache_info(self):
        """Count the calls so far."""
        return CacheInfo(self._hits, len(self._compiled))

    def stablehlo(self, *arguments, **static):
        """The program for such arguments, as text."""
        leaves = []
        structure = flatten(arguments, leaves)
        leaves = [x if type(x) is pjrt_hub.Buffer else array_of(x) for x in leaves]
        return self._trace(structure, leaves, static)[0]

    def _trace(self, structure, leaves, static):
        name, outputs = self.__name__, []
        takes = [Tensor(None, (), x.shape, known(f"{name} of an array", x.dtype)) for x in leaves]
        result = flatten(self._function(*unflatten(structure, iter(takes)), **static), outputs)
        outputs = [lift(f"the result of {name}", each) for each in outputs]
        return module(name, takes, outputs), result

    def _compile(self, client, structure, leaves, static):
        program, result = self._trace(structure, leaves, static)
        try:
            return client.compile(program), result
        except pjrt_hub.errors.PjrtError as refused:
            what = f"the compiler of {client.platform_name} refused {self.__name__}"
            raise CompileError(f"{what}: {refused}", program) from refused


def array_of(value):
    """Make an array of what is on the host; Python's numbers get 32 bits."""
    return np.asarray(value, DEFAULTS.get(type(value)))


def static_key(static):
    """The part of a signature that keywords are; 1, 1.0 and True are equal, and not the same."""
    key = [(name, type(value), value) for name, value in sorted(static.items())]
    try:
        hash(tuple(key))
    except TypeError as exc:
        names = ", ".join(static)
        raise TypeError(f"{names}: keywords are part of the program, so {exc}") from exc
    return key
