"""A library that somebody built becomes a package that runs programs here and under JAX."""

from __future__ import annotations

import json

import pytest

#: The seconds that `pjrt-hub check` may take.
SECONDS = 3600

WALK = """
import sys
import ml_dtypes, numpy as np, pjrt_hub

client = pjrt_hub.client(sys.argv[1])
for dtype in (np.float32, np.int32, np.int8, np.bool_, ml_dtypes.bfloat16):
    for shape in ((), (5,), (2, 3), (0, 3), (64, 257)):
        values = (np.arange(np.prod(shape, dtype=int)) % 2).astype(dtype).reshape(shape)
        found = np.asarray(client.buffer_from_host(values))
        assert (found.dtype, found.shape) == (values.dtype, values.shape), (found, values)
        assert found.tobytes() == values.tobytes(), (found, values)
executable = client.compile(sys.argv[2])
signature = executable.signature
assert [str(each) for each in signature.parameters] == ["f32[2,3]"] * 2, signature
# Where the plugin tells another shape than the program, each buffer is asked for its own.
assert [str(each) for each in signature.outputs] in (["f32[2,3]"], ["f32[...]"]), signature
left = np.arange(6, dtype=np.float32).reshape(2, 3)
right = 10 * left + 1
expected = (left + right).tolist()
a, b = client.buffer_from_host(left), client.buffer_from_host(right)
assert executable(a, b).tolist() == expected
assert executable(left, right).tolist() == expected
for _ in range(200):
    result = executable(a, b)
assert result.tolist() == expected
call = executable.bind(a, b)
assert call().tolist() == expected
for wrong in ((a,), (a, b, a), (left.T, b), (left.astype(np.int32), b)):
    try:
        executable(*wrong)
    except (TypeError, ValueError):
        continue
    raise AssertionError(f"taken: {wrong}")
client.close()
"""

UNDER_JAX = """
import sys
import jax, numpy as np

left = np.arange(6, dtype=np.float32).reshape(2, 3)
right = 10 * left + 1
device = jax.devices()[0]
assert sys.argv[1] in (device.platform, "xlacpu"), device
assert np.asarray(jax.device_put(left)).tolist() == left.tolist()
assert np.asarray(jax.jit(lambda a, b: a + b)(left, right)).tolist() == (left + right).tolist()
"""


def test_it_is_listed_by_its_path(plugin, run):
    [listed] = json.loads(run("pjrt-hub", "list", plugin.library, "--json").stdout)
    assert (listed["library_path"], listed["chosen"]) == (str(plugin.library), True)
    assert listed["verdict"]["ok"]


def test_doctor_finds_nothing_wrong(plugin, run):
    told = json.loads(run("pjrt-hub", "doctor", plugin.library, "--json").stdout)
    assert [step["what"] for step in told if not step["ok"]] == []
    assert {"headers", "load", "client"} <= {step["what"] for step in told}


def test_lint_reads_it(plugin, run):
    ended = run("pjrt-hub", "lint", plugin.library, "--json", status=None)
    assert ended.returncode in (0, 1), ended.stderr
    print(ended.stdout)
    json.loads(ended.stdout)


def test_arrays_and_a_program_run(plugin, run, program):
    run("python", "-c", WALK, plugin.library, program)


def test_the_command_runs_a_program(plugin, run, program):
    arguments = ("--arg", "f32[2,3]:1,2,3,4,5,6", "--arg", "f32[2,3]:10,20,30,40,50,60")
    words = ("--platform", plugin.library, *arguments, "--json")
    told = json.loads(run("pjrt-hub", "run", program, *words).stdout)
    [result] = told["results"]
    assert (result["dtype"], result["shape"]) == ("float32", [2, 3])
    assert result["data"] == [[11, 22, 33], [44, 55, 66]]


def test_the_package_runs_in_an_empty_environment(plugin, run, installed, program):
    listed = json.loads(run(installed / "pjrt-hub", "list", plugin.name, "--json").stdout)
    assert [each["name"] for each in listed if each["chosen"]] == [plugin.name]
    run(installed / "python", "-c", WALK, plugin.name, program)


def test_jax_runs_on_the_package(plugin, run, installed):
    run(installed / "pip", "install", "jax==0.10.2", "jaxlib==0.10.2")
    run(installed / "python", "-c", UNDER_JAX, plugin.name, JAX_PLATFORMS=plugin.name)


@pytest.mark.timeout(SECONDS + 60)
def test_a_check_comes_to_its_end(plugin, run, tmp_path):
    """Its findings are for the plugin's makers, so they are printed and not judged."""
    report = tmp_path / "report.json"
    words = ("--output", report)
    ended = run("pjrt-hub", "check", plugin.library, *words, status=None, seconds=SECONDS)
    print(ended.stdout)
    assert ended.returncode in (0, 1), ended.stderr
    assert json.loads(report.read_text())["results"] != []
