"""Create options under JAX: whose they are, their types, and what is refused before the call."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

COUNT = """
import jax
try:
    print(jax.device_count())
except RuntimeError as exc:
    print(exc)
"""


@pytest.mark.parametrize(
    ("options", "env", "devices"),
    [
        ("None", {}, 1),
        ("{'cpu_device_count': 2}", {}, 2),
        ("lambda: {'cpu_device_count': 3}", {}, 3),
        ("None", {"JAX_NUM_CPU_DEVICES": "4"}, 4),
        ("{'cpu_device_count': 2}", {"JAX_NUM_CPU_DEVICES": "4"}, 2),
        (
            "{'cpu_device_count': 2}",
            {"JAX_PJRT_CLIENT_CREATE_OPTIONS": "cpu_device_count:5", "JAX_NUM_CPU_DEVICES": "4"},
            5,
        ),
    ],
)
def test_jaxs_setting_wins_over_the_programs_over_what_follows(python, options, env, devices):
    script = f"import pjrt_hub.jax\npjrt_hub.jax.register('cpu', options={options})\n"
    ended = python(script + COUNT, **env)
    assert (ended.status, ended.printed) == (0, f"{devices}\n"), ended.errors


def test_a_dict_in_jaxs_configuration_keeps_its_types(python):
    script = """
    import jax
    jax.config.update("jax_pjrt_client_create_options", {"cpu_device_count": 3})
    print(jax.device_count())
    """
    ended = python(script, PJRT_HUB_JAX="cpu")
    assert (ended.status, ended.printed) == (0, "3\n"), ended.errors


@pytest.mark.parametrize(
    ("options", "setting", "said"),
    [
        ("{'cpu_device_count': '2'}", "", "'cpu_device_count' is of type int64, found '2'"),
        ("{'cpu_device_cont': 2}", "", "cpu has no create option 'cpu_device_cont'"),
        ("None", "cpu_device_count:two", "'cpu_device_count' is of type int64, found 'two'"),
        ("None", "devices:2", "cpu has no create option 'devices'"),
    ],
)
def test_what_the_plugin_does_not_take_is_refused_before_the_call(python, options, setting, said):
    """A wrong type would end this process inside the plugin; an unknown one would do nothing."""
    script = f"import pjrt_hub.jax\npjrt_hub.jax.register('cpu', options={options})\n"
    ended = python(script + COUNT, JAX_PJRT_CLIENT_CREATE_OPTIONS=setting)
    assert ended.status == 0, ended.errors
    assert ended.printed.startswith("Unable to initialize backend 'hubcpu': ")
    assert said in ended.printed


def test_what_jax_concludes_and_the_plugin_lacks_is_left_out(python):
    """The place in a job, and for a GPU `enable_mock_nccl`, which JAX would give to any."""
    ended = python(
        """
        import socket, jax
        from clients import is_plugin
        held = socket.socket()  # so that nobody else gets the port
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("localhost", 0))
        port = held.getsockname()[1]
        jax.distributed.initialize(f"localhost:{port}", num_processes=1, process_id=0)
        print(jax.device_count(), jax.process_count(), is_plugin(jax.devices()[0].client))
        jax.distributed.shutdown()
        """,
        PJRT_HUB_JAX="cpu",
    )
    assert (ended.status, ended.printed) == (0, "1 1 True\n"), ended.errors


def test_a_plugin_that_does_not_join_processes_is_refused_in_a_job_of_several(python):
    """Each would be process 0 of 1, and a sum over all devices one over its own."""
    script = """
    import sys, jax
    jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
    try:
        print(jax.devices())
    except RuntimeError as exc:
        print(exc)
    """
    with socket.socket() as held:  # so that nobody else gets the port
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("localhost", 0))
        place = f"localhost:{held.getsockname()[1]}"
        with ThreadPoolExecutor() as both:
            ended = list(both.map(lambda i: python(script, place, i, PJRT_HUB_JAX="cpu"), "01"))
    for each in ended:
        assert "cpu does not join processes: of the 2 that jax.distributed" in each.printed
        assert "hint: use another platform" in each.printed
        assert each.status == 0, each.errors
