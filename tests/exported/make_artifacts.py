"""Writes the small artifacts of these tests: `python make_artifacts.py`, with jax and flatbuffers.

JAX 0.10.2 wrote those without a version in their names; `release` writes those with JAX's version.
"""

import os
import sys
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax._src import core, effects
from jax.interpreters import mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

HERE = Path(__file__).parent / "artifacts"
F32 = jnp.float32
Point = namedtuple("Point", "x y")


def of(shape=(), dtype=F32):
    return jax.ShapeDtypeStruct(shape, dtype)


def add(a, b):
    return a + b


def nested(weights, x, *, scale):
    """Takes a dict with an array that is not used, an array, and a number by name."""
    return {"y": jnp.tanh(weights["a"] @ x) * scale, "z": (x.sum(), None, [x])}


def nested_types():
    return {"a": of((2, 3)), "unused": of((1,), np.int32)}, of((3,))


def move(point):
    """Takes a namedtuple, and returns another one with a list inside."""
    return Point(point.y, [point.x + 1])


def reorder(given):
    """Returns an OrderedDict whose keys are not in alphabetical order."""
    return OrderedDict(z=given["a"], b=given["c"] * 2)


def grow(x):
    """Uses a size of the argument in a value and in a shape."""
    return x * 2 + x.shape[0], jnp.concatenate([x, x])


@dataclass(frozen=True)
class Ordered(effects.Effect):
    """An effect that shows only in its token."""


@dataclass(frozen=True)
class Unordered(effects.Effect):
    """An effect without a token."""


def effect_of(kind, *, ordered):
    """Return an operation that returns its argument and has an effect."""
    effects.lowerable_effects.add_type(kind)
    if ordered:
        effects.ordered_effects.add_type(kind)
    effect, primitive = kind(), core.Primitive(kind.__name__)
    primitive.def_effectful_abstract_eval(lambda x: (x, {effect}))

    def lower(ctx, x):
        if ordered:
            ctx.set_tokens_out(mlir.TokenSet({effect: ctx.tokens_in.get(effect)}))
        return [x]

    mlir.register_lowering(primitive, lower)
    return primitive.bind


def write(name, exported):
    (HERE / f"{name}.jaxexport").write_bytes(exported.serialize())


def mesh(*sizes):
    """Return a mesh of devices that has these sizes along the axes x and y."""
    devices = np.array(jax.devices()[: np.prod(sizes)])
    return Mesh(devices.reshape(sizes), ("x", "y")[: len(sizes)])


def lay(*spec, over=(2, 2)):
    """Return how an array lies on a mesh."""
    return NamedSharding(mesh(*over), PartitionSpec(*spec))


def split():
    """Export a product on a mesh of 2 x 2 devices; one result is split and one is not."""
    function = jax.jit(
        lambda a, b: {"c": a @ b, "n": a.sum()},
        in_shardings=(lay("x", "y"), lay(("y", "x"))),
        out_shardings={"c": lay("x"), "n": lay()},
    )
    return export.export(function, platforms=("cpu",))(of((4, 4)), of((4, 6)))


def leave_open(given, *platforms, shape=(8, 4), **more):
    """Export a transposed result and a scaled one, which the compiler may split as it likes."""
    function = jax.jit(lambda a: (a.T, a * 2), in_shardings=given, **more)
    return export.export(function, platforms=platforms or ("cpu",))(of(shape))


def split_unevenly():
    """Export a function of six rows over four devices, of which the last gets none."""
    rows = lay("x", over=(4,))
    function = jax.jit(lambda a: jax.lax.with_sharding_constraint(a * 2, rows))
    return export.export(function, platforms=("cpu",))(of((6, 2)))


def special(x):
    """Functions that JAX writes in the dialect chlo."""
    return {
        "erf": jax.scipy.special.erf(x),
        "cdf": jax.scipy.stats.norm.cdf(x),
        "top_k": jax.lax.top_k(x, 2),
        "asin": jnp.arcsin(x),
        "acosh": jnp.arccosh(x + 1),
        "atanh": jnp.arctanh(x),
        "sinh": jnp.sinh(x),
        "cosh": jnp.cosh(x),
    }


def total():
    """Export the sum of four devices' rows, by a collective along one axis of their mesh."""
    over = {"mesh": mesh(4), "in_specs": PartitionSpec("x"), "out_specs": PartitionSpec()}
    function = jax.jit(jax.shard_map(lambda a: jax.lax.psum(a, "x"), **over))
    return export.export(function, platforms=("cpu",))(of((8, 4)))


def linear_algebra(x):
    """Returns what LAPACK computes on CPUs, as values that do not depend on its choice of signs."""
    upper = jnp.triu(jnp.ones(x.shape[-2:], bool))
    positive = x @ jnp.swapaxes(x, -1, -2) + 4 * jnp.eye(x.shape[-1], dtype=x.dtype)
    return {
        "cholesky": jnp.linalg.cholesky(positive),
        "det": jnp.linalg.det(x),
        "eigenvalues": jnp.linalg.eigh(positive)[0],
        "inverse": jnp.linalg.inv(positive),
        "qr": jnp.abs(jnp.where(upper, jnp.linalg.qr(x)[1], 0)),
        "singular": jnp.linalg.svd(x, compute_uv=False),
        "solved": jnp.linalg.solve(positive, x),
        "spectral_radius": jnp.abs(jnp.linalg.eigvals(x)).max(-1),
    }


def constants_of(dtype, count=1):
    """Return arrays that no two programs of these tests share; the test makes them again."""
    return [(np.arange(64).reshape(8, 8) % (7 + n) - 3).astype(dtype) for n in range(count)]


def constants(x):
    """Uses constants in functions that call each other, in loops and in branches."""
    first, second, third = map(jnp.asarray, constants_of(np.float32, 3))
    inner = jax.jit(lambda x: x @ first + third)
    middle = jax.jit(lambda x: inner(x) + inner(x @ second))
    looped = jax.lax.fori_loop(0, 2, lambda i, x: middle(x) / 64 + i, x)
    return {
        "looped": looped,
        "chosen": jax.lax.cond(x[0, 0] > 0, lambda x: x @ second, middle, x),
        "reduced": jnp.sum(x * third, axis=0),
        "bfloat16": x.astype(jnp.bfloat16) * jnp.asarray(*constants_of(jnp.bfloat16)),
        "int8": jnp.asarray(*constants_of(np.int8)) + x.astype(np.int8),
        "complex": x * jnp.asarray(*constants_of(np.complex64)),
        "bool": jnp.asarray(*constants_of(bool)) & (x > 0),
    }


def constants_and_sizes(x):
    """Uses a constant beside a size of the argument."""
    [first] = map(jnp.asarray, constants_of(np.float32))
    return jax.jit(lambda x: x @ first)(x) + x.shape[0]


def main():
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    HERE.mkdir(exist_ok=True)

    def on(function, *platforms):
        return export.export(jax.jit(function), platforms=platforms or ("cpu",))

    b, c = export.symbolic_shape("b, c")
    if sys.argv[1:] == ["release"]:
        release = jax.__version__
        write(f"nested-{release}", export.export(jax.jit(nested))(*nested_types(), scale=of()))
        write(f"split-{release}", split())
        write(f"symbolic-{release}", on(grow)(of((b, 3))))
        if release.startswith(("0.11.", "0.12.")):  # these need a StableHLO of 2026
            write(f"total-{release}", total())
            write(f"cholesky-{release}", on(jnp.linalg.cholesky)(of((4, 4))))
        return
    export.register_namedtuple_serialization(Point, serialized_name="geometry.Point")
    write("add", on(add)(of((8,)), of((8,))))
    write("nested", on(nested)(*nested_types(), scale=of()))
    write("point", on(move)(Point(of((2,)), of())))
    write("ordered_dict", on(reorder)(OrderedDict(c=of((2,)), a=of())))
    write("platforms", on(lambda x: jnp.sin(x) * 2, "cuda", "cpu", "tpu")(of((4,))))
    write("cholesky", on(jnp.linalg.cholesky, "cuda", "cpu")(of((4, 4))))
    write("cpu_cholesky", on(jnp.linalg.cholesky)(of((4, 4))))
    write("linear_algebra", on(linear_algebra)(of((4, 4))))
    write("cuda_only", on(lambda x: x + 1, "cuda")(of((4,))))
    write("symbolic", on(grow)(of((b, 3))))
    write("linear_algebra_symbolic", on(linear_algebra)(of((b, 3, 3))))
    write("two_symbols", on(lambda x, y: x[:, :1] + y[: x.shape[0]])(of((b, c)), of((2 * b + 1,))))
    write(
        "random_key", on(lambda key: jax.random.uniform(key, (3,)))(of((), jax.random.key(0).dtype))
    )
    write("ordered_effect", on(effect_of(Ordered, ordered=True))(of((2,))))
    write("unordered_effect", on(effect_of(Unordered, ordered=False))(of((2,))))
    write("composite", on(jax.scipy.special.erf)(of((3,))))
    write("special", on(special, "cuda", "cpu")(of((3, 4))))
    write("special_symbolic", on(special)(of((b, 4))))
    write("sine", on(jnp.sin, "cuda", "cpu")(of((2,))))
    write("constants", on(constants, "cuda", "cpu")(of((8, 8))))
    write("constants_symbolic", on(constants_and_sizes)(of((b, 8))))
    write("split", split())
    write("open", leave_open(lay("x", "y")))
    write("open_platforms", leave_open(lay("x", "y"), "cuda", "cpu"))
    write("open_symbolic", leave_open(lay("x"), shape=(4 * b, 4)))
    write("open_in", leave_open(None, out_shardings=(lay("x"), lay("y", "x"))))
    jax.config.update("jax_use_shardy_partitioner", False)
    write("open_gspmd", leave_open(lay("x", "y")))
    write("uneven", split_unevenly())
    jax.config.update("jax_use_shardy_partitioner", True)
    write("bfloat16", on(lambda x: x * 2)(of((4,), jnp.bfloat16)))


if __name__ == "__main__":
    main()
