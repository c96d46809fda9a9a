"""What programs do under JAX on the plugin: OpenXLA's three, and a group of functions a child."""

from __future__ import annotations


def test_the_three_programs_of_the_integration_guide(jax):
    ended = jax(
        """
        print(jax.devices(), jax.default_backend(), jax.device_count())
        print(jnp.add(1, 1))
        print(jax.jit(lambda x: x * 2)(1.))
        f = jax.pmap(lambda x: x + jax.lax.psum(x, "i"), axis_name="i")
        print(f(jnp.arange(jax.device_count())))
        print("PJRT C API" in jax.devices()[0].client.platform_version)
        """
    )
    assert ended.status == 0, ended.errors
    devices, *rest = ended.printed.splitlines()
    assert devices.endswith("CpuDevice(id=3)] cpu 4")
    assert rest == ["2", "2.0", "[6 7 8 9]", "True"]
    assert ended.errors == ""
