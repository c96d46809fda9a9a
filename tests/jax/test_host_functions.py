"""Python functions that JAX's programs call, on the plugin."""

from __future__ import annotations

import logging

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest
from children import in_child

pytestmark = pytest.mark.cpu("JAX calls Python on platforms that it knows")


@in_child
def test_a_program_calls_python():
    kept = []

    def twice(x):
        kept.append(x)
        return np.asarray(x) * 2, np.asarray(x) > 1

    def call(x):
        types = (x, jax.ShapeDtypeStruct(x.shape, bool))
        return jax.pure_callback(twice, types, x, vmap_method="sequential")

    for dtype in ("float32", "int8", "bfloat16", "complex64", "bool"):
        double, above = jax.jit(call)(jnp.zeros((2, 0, 3), dtype))
        assert (double.shape, double.dtype, above.dtype) == ((2, 0, 3), dtype, bool)
    double, above = jax.jit(jax.vmap(call))(jnp.arange(3.0))
    np.testing.assert_array_equal(double, [0, 2, 4])
    np.testing.assert_array_equal(above, [False, False, True])
    np.testing.assert_array_equal(kept[-3:], [0, 1, 2])  # the arguments outlive the call
    inner = jax.jit(lambda x: x * 3)
    assert jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(inner(x)), x, x))(2.0) == 6


@in_child
def test_two_programs_call_their_own():
    programs = [
        jax.jit(lambda x, n=n: jax.pure_callback(lambda x: x + n, x, x)).lower(1.0).compile()
        for n in np.float32([10, 20])
    ]
    assert [float(each(1.0)) for each in programs * 2] == [11, 21, 11, 21]


@in_child(stdout="x=1.0\n")
def test_effects_come_in_order():
    seen = []

    def step(x):
        return jax.experimental.io_callback(
            lambda x: (seen.append(float(x)), x + 1)[1], x, x, ordered=True
        )

    def program(x):
        jax.debug.print("x={x}", x=x)
        return jax.lax.fori_loop(0, 5, lambda _, x: step(x), x)

    assert jax.jit(program)(jnp.float32(1)) == 6
    jax.effects_barrier()
    assert seen == [1, 2, 3, 4, 5]


@in_child
def test_an_exception_is_the_executions_error():
    def fail(x):
        raise ValueError("of the function")

    logging.disable()  # JAX logs the exception, too
    with pytest.raises(Exception, match="ValueError: of the function") as caught:
        jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(fail, x, x))(1.0))
    assert str(caught.value).startswith("INVALID_ARGUMENT: xla_ffi_python_cpu_callback: ")
    assert jnp.add(1, 1) == 2


@in_child
def test_what_takes_jaxlibs_buffers_is_refused_and_said():
    from jax.experimental.buffer_callback import buffer_callback

    function = buffer_callback(print, jax.ShapeDtypeStruct((), "float32"))
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.block_until_ready(jax.jit(function)(1.0))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("UNIMPLEMENTED:")
    assert "a plugin cannot call these Python functions of JAX: buffer_callback" in lines[0]
    assert lines[-1].startswith("hint: use pure_callback, io_callback or debug.callback instead")
