"""`eval "$(pjrt-hub env cpu --for HOST)"` in a shell, and then the host, which uses the plugin."""

import subprocess
import sys

import pytest

#: How a shell runs the command; where `without` is set, as if the host were installed elsewhere.
SHELL = """
set -e
lines=$("$1" -c "
import sys
sys.modules.update(dict.fromkeys('$3'.split(','), None))
from pjrt_hub.cli.__main__ import main
main()" env cpu --for "$2")
eval "$lines"
exec "$1" -c "$4"
"""
JAX = """
import jax
print(jax.devices() == jax.devices("hubcpu"), jax.jit(lambda x: x * 2)(jax.numpy.arange(3)))
"""
PYPJRT = """
import pypjrt
print(pypjrt.Client.create(pypjrt.Plugin()).platform_name, pypjrt.find_plugin())
"""


@pytest.fixture
def told(environment):
    """Let a host be told of the plugin, run it, and return what it prints."""

    def told(host, program, without="-"):
        done = subprocess.run(
            ["bash", "-c", SHELL, "-", sys.executable, host, without, program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return told


@pytest.mark.parametrize("without", ["-", "jax"], ids=["beside pjrt-hub", "elsewhere"])
def test_it_tells_jax(told, without):
    pytest.importorskip("jax")
    assert told("jax", JAX, without) == "True [0 2 4]\n"


def test_it_tells_pypjrt(told, library):
    pytest.importorskip("pypjrt")
    assert told("pypjrt", PYPJRT) == f"cpu {library}\n"
