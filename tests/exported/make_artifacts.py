"""Writes the small artifacts of these tests: `python make_artifacts.py`, with jax and flatbuffers.

With a JAX before 0.5 it writes only the one of the old form.
"""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax._src import core, effects
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

HERE = Path(__file__).parent / "artifacts"
F32 = jnp.float32
Point = namedtuple("Point", "x y")


def of(shape=(), dtype=F32):
    """A type of an argument."""
    return jax.ShapeDtypeStruct(shape, dtype)


def add(a, b):
    """Two vectors."""
    return a + b


def nested(weights, x, *, scale):
    """A dict of which one array is not used, an array, and a number by name."""
    return {"y": jnp.tanh(weights["a"] @ x) * scale, "z": (x.sum(), None, [x])}


def nested_types():
    """What it takes by place."""
    return {"a": of((2, 3)), "unused": of((1,), np.int32)}, of((3,))


def move(point):
    """A namedtuple to another, with a list inside."""
    return Point(point.y, [point.x + 1])


def reorder(given):
    """An OrderedDict, in another order than the alphabet's."""
    return OrderedDict(z=given["a"], b=given["c"] * 2)


def grow(x):
    """A size of the argument becomes a value and a shape."""
    return x * 2 + x.shape[0], jnp.concatenate([x, x])


@dataclass(frozen=True)
class Ordered(effects.Effect):
    """An effect that nothing but its token tells of."""


@dataclass(frozen=True)
class Unordered(effects.Effect):
    """One without a token."""


def effect_of(kind, *, ordered):
    """An operation that gives what it takes, and has an effect."""
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
    """Writes one."""
    (HERE / f"{name}.jaxexport").write_bytes(exported.serialize())


def split():
    """A product on a mesh of 2 x 2, one result split and one not."""
    mesh = jax.make_mesh((2, 2), ("x", "y"))

    def on(*spec):
        return NamedSharding(mesh, PartitionSpec(*spec))

    function = jax.jit(
        lambda a, b: {"c": a @ b, "n": a.sum()},
        in_shardings=(on("x", "y"), on(("y", "x"))),
        out_shardings={"c": on("x"), "n": on()},
    )
    return export.export(function, platforms=("cpu",))(of((4, 4)), of((4, 6)))


def main():
    """Writes all of them."""
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    HERE.mkdir(exist_ok=True)
    if jax.__version_info__ < (0, 5):
        write("old_form", export.export(jax.jit(nested))(*nested_types(), scale=of()))
        return
    jax.config.update("jax_num_cpu_devices", 4)
    export.register_namedtuple_serialization(Point, serialized_name="geometry.Point")

    def on(function, *platforms):
        return export.export(jax.jit(function), platforms=platforms or ("cpu",))

    write("add", on(add)(of((8,)), of((8,))))
    write("nested", on(nested)(*nested_types(), scale=of()))
    write("point", on(move)(Point(of((2,)), of())))
    write("ordered_dict", on(reorder)(OrderedDict(c=of((2,)), a=of())))
    write("platforms", on(lambda x: jnp.sin(x) * 2, "cuda", "cpu", "tpu")(of((4,))))
    write("cholesky", on(jnp.linalg.cholesky, "cuda", "cpu")(of((4, 4))))
    write("cpu_cholesky", on(jnp.linalg.cholesky)(of((4, 4))))
    write("cuda_only", on(lambda x: x + 1, "cuda")(of((4,))))
    b, c = export.symbolic_shape("b, c")
    write("symbolic", on(grow)(of((b, 3))))
    write("two_symbols", on(lambda x, y: x[:, :1] + y[: x.shape[0]])(of((b, c)), of((2 * b + 1,))))
    write(
        "random_key", on(lambda key: jax.random.uniform(key, (3,)))(of((), jax.random.key(0).dtype))
    )
    write("ordered_effect", on(effect_of(Ordered, ordered=True))(of((2,))))
    write("unordered_effect", on(effect_of(Unordered, ordered=False))(of((2,))))
    write("composite", on(jax.scipy.special.erf)(of((3,))))
    write("split", split())
    write("bfloat16", on(lambda x: x * 2)(of((4,), jnp.bfloat16)))


if __name__ == "__main__":
    main()
