"""Computations for the compute and compile benchmarks, as functions of JAX with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy
from jax import lax

Function = Callable[..., Any]
LAYERS, SEQUENCE, WIDTH, HEADS = 12, 64, 256, 4


class Workload(NamedTuple):
    """A function and host arrays to call it with."""

    function: Function
    arguments: tuple[numpy.ndarray | numpy.generic, ...]


def chosen() -> dict[str, Workload]:
    """Those of the benchmark page: each takes a tenth of a millisecond or more."""
    every = sweep()
    return {
        row: every[name]
        for row, name in {
            "matmul 1024": "matmul f32 1024",
            "MLP 784-512-512-10, batch 128": "mlp",
            "tanh(a·b+1), 1M": "tanh chain f32",
            "sum of 4M": "sum f32 4M",
            "softmax 1024 x 1024": "softmax",
            "layer norm 1024 x 1024": "layer norm",
            "convolution 3 x 3, 32 channels, 64 x 64": "conv 2d",
            "attention, 8 heads, 256 x 64": "attention",
            "transformer, 12 layers": "transformer 12",
        }.items()
    }


def sweep() -> dict[str, Workload]:
    """Operations, sizes and element types that a compiler may treat each in its own way."""
    return {name: each for part in _PARTS for name, each in part()}


def transformer(layers: int) -> Workload:
    """The forward pass of a decoder: 64 tokens of width 256, 4 heads, and a causal mask."""
    weights = [
        _random(*shape) * numpy.float32(0.05)
        for shape in [(4, WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
    ]
    shared = tuple(weights)

    def forward(x: Any, *each: Any) -> Any:
        for layer in range(layers):
            x = _layer(x, *each[3 * layer : 3 * layer + 3])
        return x

    return Workload(forward, (_random(SEQUENCE, WIDTH), *shared * layers))


def _layer(x: Any, attention: Any, up: Any, down: Any) -> Any:
    normal = _layer_norm(x)
    query, key, value = (
        (normal @ attention[i]).reshape(SEQUENCE, HEADS, -1).transpose(1, 0, 2) for i in range(3)
    )
    mixed = _attention(query, key, value).transpose(1, 0, 2).reshape(SEQUENCE, WIDTH)
    x = x + mixed @ attention[3]
    return x + jax.nn.gelu(_layer_norm(x) @ up) @ down


def _attention(query: Any, key: Any, value: Any) -> Any:
    scores = jnp.einsum("hqd,hkd->hqk", query, key) / numpy.float32(query.shape[-1] ** 0.5)
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), value)


def _layer_norm(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def _random(*shape: int, dtype: Any = "float32") -> numpy.ndarray:
    values = numpy.random.default_rng(sum(shape)).standard_normal(shape, numpy.float32)
    kind = numpy.dtype(dtype)
    return (values * 40).astype(kind) if kind.kind in "iu" else values.astype(kind)


Named = Iterator[tuple[str, Workload]]


def _reductions() -> Named:
    for name in ("float32", "float64", "bfloat16", "float16", "int32"):
        kind = jnp.dtype(name)
        short = {"f": "f", "i": "s", "V": "bf"}[kind.kind] + str(kind.itemsize * 8)
        yield f"sum {short} 4M", Workload(lambda x: x.sum(), (_random(4 << 20, dtype=kind),))
    square = (_random(1024, 1024),)
    yield "sum f32 64K", Workload(jnp.sum, (_random(64 << 10),))
    yield "sum rows", Workload(lambda x: x.sum(1), square)
    yield "sum columns", Workload(lambda x: x.sum(0), square)
    yield "sum middle", Workload(lambda x: x.sum(1), (_random(64, 64, 256),))
    yield "sum outer two", Workload(lambda x: x.sum((0, 1)), (_random(64, 64, 256),))
    yield "sum of squares", Workload(lambda x: (x * x).sum(), (_random(4 << 20),))
    yield "max", Workload(jnp.max, (_random(4 << 20),))
    yield "max rows", Workload(lambda x: x.max(1), square)
    yield "min columns", Workload(lambda x: x.min(0), square)
    yield "product", Workload(jnp.prod, (_random(1 << 20),))
    yield "all", Workload(lambda x: (x < 9).all(), (_random(4 << 20),))
    yield "argmax rows", Workload(lambda x: x.argmax(1), square)
    yield "mean and variance", Workload(lambda x: (x.mean(1), x.var(1)), square)
    yield "logsumexp", Workload(lambda x: jax.nn.logsumexp(x, 1), square)
    yield "softmax", Workload(lambda x: jax.nn.softmax(x), square)
    yield "softmax bf16", Workload(jax.nn.softmax, (_random(1024, 1024, dtype=jnp.bfloat16),))
    yield "layer norm", Workload(_layer_norm, square)
    yield "cumsum", Workload(lambda x: jnp.cumsum(x, 1), (_random(256, 1024),))
    yield "max pool", Workload(_max_pool, (_random(8, 64, 64, 32),))


def _max_pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _products() -> Named:
    for size in (64, 256, 1024):
        yield f"matmul f32 {size}", Workload(jnp.matmul, (_random(size, size),) * 2)
    for name in ("float64", "bfloat16", "float16", "int8", "int32"):
        kind = jnp.dtype(name)
        pair = (_random(256, 256, dtype=kind),) * 2
        yield f"matmul {name} 256", Workload(jnp.matmul, pair)
    yield (
        "matmul int8 to int32",
        Workload(
            lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
            (_random(256, 256, dtype="int8"),) * 2,
        ),
    )
    yield (
        "matmul bf16 to f32",
        Workload(
            lambda a, b: lax.dot(a, b, preferred_element_type=jnp.float32),
            (_random(256, 256, dtype=jnp.bfloat16),) * 2,
        ),
    )
    yield "matmul transposed", Workload(lambda a, b: a @ b.T, (_random(512, 512),) * 2)
    yield "matmul tall", Workload(jnp.matmul, (_random(4096, 64), _random(64, 64)))
    yield "matmul wide", Workload(jnp.matmul, (_random(16, 1024), _random(1024, 4096)))
    yield "matrix by vector", Workload(jnp.matmul, (_random(2048, 2048), _random(2048)))
    yield "vector by matrix", Workload(jnp.matmul, (_random(2048), _random(2048, 2048)))
    yield "dot of vectors", Workload(jnp.dot, (_random(1 << 20),) * 2)
    yield "outer product", Workload(jnp.outer, (_random(1024),) * 2)
    yield "batched matmul", Workload(jnp.matmul, (_random(32, 128, 128),) * 2)
    yield (
        "matmul, bias, relu",
        Workload(
            lambda a, b, c: jax.nn.relu(a @ b + c), (_random(512, 512),) * 2 + (_random(512),)
        ),
    )
    yield (
        "conv 1d",
        Workload(
            lambda x, k: lax.conv(x, k, (1,), "SAME"), (_random(8, 32, 1024), _random(32, 32, 5))
        ),
    )
    dimensions = ("NHWC", "HWIO", "NHWC")
    image, kernel = _random(4, 64, 64, 32), _random(3, 3, 32, 32)

    def convolve(x: Any, k: Any, strides: tuple[int, int] = (1, 1), groups: int = 1) -> Any:
        return lax.conv_general_dilated(
            x, k, strides, "SAME", dimension_numbers=dimensions, feature_group_count=groups
        )

    yield "conv 2d", Workload(convolve, (image, kernel))
    yield (
        "conv 2d bf16",
        Workload(convolve, (image.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16))),
    )
    yield "conv 2d strided", Workload(lambda x, k: convolve(x, k, (2, 2)), (image, kernel))
    yield "conv 2d 1x1", Workload(convolve, (image, _random(1, 1, 32, 64)))
    yield (
        "conv 2d channels first",
        Workload(
            lambda x, k: lax.conv(x, k, (1, 1), "SAME"),
            (_random(4, 32, 64, 64), _random(32, 32, 3, 3)),
        ),
    )
    yield (
        "conv 2d depthwise",
        Workload(lambda x, k: convolve(x, k, groups=32), (image, _random(3, 3, 1, 32))),
    )


def _elementwise() -> Named:
    many = _random(1 << 20)
    positive = numpy.abs(many) + numpy.float32(0.1)
    yield "tanh chain f32", Workload(lambda a, b: jnp.tanh(a * b + 1.0), (many, many))
    yield (
        "tanh chain bf16",
        Workload(lambda a, b: jnp.tanh(a * b + 1.0), (many.astype(jnp.bfloat16),) * 2),
    )
    yield "add", Workload(jnp.add, (_random(4 << 20),) * 2)
    for function in (jnp.exp, jnp.tanh, jnp.sin, jnp.cos, lax.erf, lax.logistic, jnp.expm1):
        yield function.__name__, Workload(function, (many,))
    for function in (jnp.log, jnp.sqrt, lax.rsqrt, jnp.log1p, jnp.cbrt):
        yield function.__name__, Workload(function, (positive,))
    yield "power", Workload(jnp.power, (positive, many))
    yield "exp f64", Workload(jnp.exp, (many.astype("float64"),))
    yield "tanh f16", Workload(jnp.tanh, (many.astype("float16"),))
    yield "divide", Workload(jnp.divide, (many, positive))
    yield (
        "integer divide",
        Workload(
            jnp.floor_divide, (_random(1 << 20, dtype="int32"), numpy.full(1 << 20, 7, "int32"))
        ),
    )
    yield "gelu", Workload(jax.nn.gelu, (many,))
    yield "gelu exact", Workload(lambda x: jax.nn.gelu(x, approximate=False), (many,))
    yield "long chain", Workload(_long_chain, (many,))
    yield "select", Workload(lambda x: jnp.where(x > 0, x * 2, x - 1), (many,))
    yield "convert to bf16", Workload(lambda x: x.astype(jnp.bfloat16), (many,))
    yield "convert to s8", Workload(lambda x: x.astype(jnp.int8), (many,))
    yield "complex product", Workload(jnp.multiply, (many.astype("complex64"),) * 2)


def _long_chain(x: Any) -> Any:
    for _ in range(16):
        x = jnp.sin(x) * 0.5 + x
    return x


def _movement() -> Named:
    square, many = _random(1024, 1024), _random(1 << 20)
    rows = numpy.random.default_rng(1).integers(0, 1024, 4096).astype("int32")
    yield "transpose", Workload(jnp.transpose, (square,))
    yield "transpose 4d", Workload(lambda x: x.transpose(0, 3, 1, 2), (_random(8, 64, 64, 32),))
    yield "reverse", Workload(lambda x: x[::-1], (many,))
    yield "concatenate", Workload(lambda a, b: jnp.concatenate([a, b], 1), (square, square))
    yield "pad", Workload(lambda x: jnp.pad(x, 3), (square,))
    yield "broadcast", Workload(lambda x: jnp.broadcast_to(x, (1024, 1024)) + 1, (_random(1024),))
    yield "slice", Workload(lambda x: x[::2, 1::2], (square,))
    yield "gather rows", Workload(lambda x, i: x[i], (square, rows))
    yield (
        "gather elements",
        Workload(lambda x, i: jnp.take(x, i), (many, _random(1 << 18, dtype="int32"))),
    )
    yield (
        "scatter add rows",
        Workload(lambda x, i, u: x.at[i].add(u), (square, rows, _random(4096, 1024))),
    )
    yield (
        "scatter elements",
        Workload(lambda x, i: x.at[i].set(1), (many, numpy.arange(0, 1 << 20, 8, dtype="int32"))),
    )
    yield "sort", Workload(jnp.sort, (_random(1 << 18),))
    yield "sort rows", Workload(lambda x: jnp.sort(x, 1), (_random(256, 1024),))
    yield "argsort", Workload(jnp.argsort, (_random(1 << 16),))
    yield "top 16", Workload(lambda x: lax.top_k(x, 16), (_random(64, 4096),))
    yield (
        "dynamic slice",
        Workload(lambda x, i: lax.dynamic_slice(x, (i, i), (512, 512)), (square, numpy.int32(100))),
    )
    yield (
        "dynamic update",
        Workload(
            lambda x, y, i: lax.dynamic_update_slice(x, y, (i, i)),
            (square, _random(128, 512), numpy.int32(100)),
        ),
    )
    yield "one hot", Workload(lambda i: jax.nn.one_hot(i, 512), (rows,))


def _programs() -> Named:
    square = _random(256, 256)
    yield "fft", Workload(jnp.fft.fft, (_random(64, 4096).astype("complex64"),))
    yield "real fft 2d", Workload(jnp.fft.rfft2, (_random(512, 512),))
    yield (
        "random bits",
        Workload(lambda key: jax.random.uniform(key, (1 << 20,)), (numpy.array([0, 7], "uint32"),)),
    )
    yield (
        "random normal",
        Workload(lambda key: jax.random.normal(key, (1 << 18,)), (numpy.array([0, 7], "uint32"),)),
    )
    yield (
        "while, small",
        Workload(lambda x: lax.fori_loop(0, 1000, lambda _, y: y * 0.99 + 1.0, x), (_random(64),)),
    )
    yield (
        "while, matmul",
        Workload(lambda x: lax.fori_loop(0, 16, lambda _, y: jnp.tanh(y @ x), x), (square,)),
    )
    yield "scan, recurrent", Workload(_recurrent, (_random(64, 32, 128), _random(128, 128) / 16))
    yield (
        "conditional",
        Workload(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), (_random(512, 1024),)),
    )
    yield (
        "vmapped matrix by vector",
        Workload(jax.vmap(jnp.matmul), (_random(256, 64, 64), _random(256, 64))),
    )
    yield "attention", Workload(_attention, (_random(8, 256, 64),) * 3)
    yield (
        "mlp",
        Workload(_mlp, (_random(128, 784), _random(784, 512), _random(512, 512), _random(512, 10))),
    )
    yield (
        "mlp gradient",
        Workload(
            jax.grad(lambda w, *rest: _mlp(rest[0], w, *rest[1:]).sum()),
            (_random(784, 512), _random(128, 784), _random(512, 512), _random(512, 10)),
        ),
    )
    yield (
        "batch norm",
        Workload(
            lambda x: (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-5),
            (_random(8, 64, 64, 32),),
        ),
    )
    yield "transformer 1", transformer(1)
    yield "transformer 12", transformer(LAYERS)


def _recurrent(xs: Any, weights: Any) -> Any:
    def step(state: Any, x: Any) -> tuple[Any, None]:
        return jnp.tanh(state @ weights + x), None

    return lax.scan(step, jnp.zeros_like(xs[0]), xs)[0]


def _mlp(x: Any, first: Any, second: Any, last: Any) -> Any:
    return jax.nn.relu(jax.nn.relu(x @ first) @ second) @ last


_PARTS = (_reductions, _products, _elementwise, _movement, _programs)
