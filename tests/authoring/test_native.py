"""Plugins in C and C++: what `pjrt-hub new NAME --c` writes builds, passes, and runs in hosts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import native_plugin as native
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))


#: Which threads call an author's functions, and whether hosts reach the memory.
HOST = "plugin->host_memory = true;"
THREADS = {
    "each device's": HOST,
    "the caller's": f"{HOST} plugin->any_thread = true;",
    "the caller's, for far memory": "plugin->any_thread = true;",
    "one for all devices": f"{HOST} plugin->any_thread = plugin->asynchronous = true;",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worked example."""
    return native.build(native.write(tmp_path_factory.mktemp("example")))


@pytest.fixture(params=THREADS)
def threaded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The worked example, whose functions are called by one thread or another."""
    source = native.write(tmp_path)
    text = source.read_text("utf-8")
    assert text.count(HOST) == 1
    source.write_text(text.replace(HOST, THREADS[request.param]), "utf-8")
    return native.build(source)


def run(function, *words: object, **env: str) -> str:
    """Run a function of this file in a process of its own."""
    module, name = Path(__file__).stem, function.__name__
    script = f"import sys, {module}; {module}.{name}(*sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-c", script, *map(str, words)],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parent), **env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def test_the_header_is_made_of_the_declarations():
    import capi
    import plugin_header

    from pjrt_hub.kit import authoring

    header = Path(authoring.__file__).parent / "c" / "pjrt_plugin" / "api.h"
    assert header.read_text() == plugin_header.text(capi.read())


@pytest.mark.parametrize("example", [False, True], ids=["skeleton", "example"])
@pytest.mark.parametrize("compiler", native.COMPILERS)
def test_it_compiles_without_a_warning(tmp_path, compiler, example):
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    source = native.write(tmp_path, "c++" if compiler.endswith("+") else "c", example=example)
    assert native.build(source, compiler, *native.STRICT).is_file()


def test_only_one_function_is_exported(library):
    printed = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    assert [line.split()[-1] for line in printed.splitlines()] == ["GetPjrtApi"]


def asked_for_its_attributes(library: str) -> None:
    import pjrt_hub

    print(json.dumps(dict(pjrt_hub.client(library).plugin.attributes)))


def test_what_an_author_says_of_the_plugin_is_told(tmp_path):
    source = native.write(tmp_path, example=False)
    text = source.read_text("utf-8").replace(
        "static void describe(Plugin *plugin) {",
        """static PJRT_NamedValue generation;

static void describe(Plugin *plugin) {
  generation.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  generation.name = "generation";
  generation.name_size = strlen(generation.name);
  generation.type = PJRT_NamedValue_kInt64;
  generation.int64_value = 7;
  generation.value_size = 1;
  plugin->attributes = &generation;
  plugin->num_attributes = 1;""",
    )
    source.write_text(text, "utf-8")
    told = json.loads(run(asked_for_its_attributes, native.build(source)))
    assert told == {"generation": 7}


def test_what_an_author_writes_is_short(tmp_path):
    lines = native.write(tmp_path, example=False).read_text().splitlines()
    assert len(lines) <= 300


def run_in_jax(library: str) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax._src import xla_bridge

    xla_bridge.register_plugin("mychip", library_path=library)
    x, w = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 2), np.float32)
    functions = {
        "add": lambda x, w: x + 1,
        "multiply": lambda x, w: x * x,
        "divide": lambda x, w: x / (x + 1),
        "minimum": lambda x, w: jnp.minimum(x, 2) - jnp.maximum(x, 3),
        "tanh": lambda x, w: jnp.tanh(x),
        "exp": lambda x, w: jnp.exp(-x),
        "matmul": lambda x, w: x @ w,
        "transposed": lambda x, w: x.T @ w.T,
        "constant": lambda x, w: x + jnp.array([1, 2, 3], jnp.float32),
        "booleans": lambda x, w: jnp.where(jnp.array([True, False, True]), x, -1),
        "relu": lambda x, w: jax.nn.relu(x - 2),
        "gradient": jax.grad(lambda x, w: (jnp.tanh(x @ w).reshape(4) @ jnp.ones(4)) * 1.0),
        "integers": lambda x, w: x.astype(jnp.int32) * 3 > 7,
    }
    found = {}
    for name, function in functions.items():
        here = jax.jit(function)(x, w)
        found[name] = np.asarray(here).tolist()
    expected = {
        "add": x + 1,
        "multiply": x * x,
        "divide": x / (x + 1),
        "minimum": np.minimum(x, 2) - np.maximum(x, 3),
        "tanh": np.tanh(x),
        "exp": np.exp(-x),
        "matmul": x @ w,
        "transposed": x.T @ w.T,
        "constant": x + np.array([1, 2, 3]),
        "booleans": np.where([True, False, True], x, -1),
        "relu": np.maximum(x - 2, 0),
        "gradient": (1 - np.tanh(x @ w) ** 2) @ w.T,
        "integers": x.astype(np.int32) * 3 > 7,
    }
    wrong = [name for name in found if not np.allclose(found[name], expected[name], atol=1e-6)]
    print(json.dumps([len(jax.devices()), wrong]))


def test_jax_runs_it(library):
    pytest.importorskip("jax")
    devices, wrong = json.loads(run(run_in_jax, library, JAX_PLATFORMS="mychip"))
    assert (devices, wrong) == (2, [])


PROGRAM = """
module @layer {
  func.func @main(%x: tensor<2x3xf32>, %w: tensor<3x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xi1>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %bias = stablehlo.constant dense<[1.0, -8.0]> : tensor<2xf32>
    %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
    %biases = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<2xf32>) -> tensor<2x2xf32>
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
    %sum = call @plus(%y, %biases) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %more = stablehlo.compare GT, %sum, %zeros, FLOAT
        : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xi1>
    %kept = stablehlo.select %more, %sum, %zeros : tensor<2x2xi1>, tensor<2x2xf32>
    %turned = stablehlo.transpose %kept, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
    return %turned, %more : tensor<2x2xf32>, tensor<2x2xi1>
  }
  func.func private @plus(%a: tensor<2x2xf32>, %b: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %c = "stablehlo.add"(%a, %b) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    return %c : tensor<2x2xf32>
  }
}
"""


def run_a_layer(library: str) -> None:
    import numpy as np

    import pjrt_hub

    client = pjrt_hub.client(library)
    executable = client.compile(PROGRAM)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y, more = executable(x, np.ones((3, 2), np.float32))
    print(json.dumps([np.asarray(y).tolist(), np.asarray(more).tolist()]))


def test_pjrt_hub_runs_text(threaded):
    kept, more = json.loads(run(run_a_layer, threaded))
    assert kept == [[4.0, 13.0], [0.0, 4.0]]
    assert more == [[True, False], [True, True]]


@pytest.mark.slow
def test_any_thread_serves_as_well(threaded, tmp_path):
    report = tmp_path / "report.json"
    areas = ("buffers", "donation", "execute", "external", "transfers")
    subprocess.run(
        [
            *(sys.executable, "-m", "pjrt_hub.cli", "check", threaded, "--output", report),
            *(word for area in areas for word in ("--area", area)),
        ],
        capture_output=True,
        timeout=280,
    )
    verdicts = Counter(each["verdict"] for each in json.loads(report.read_text())["results"])
    assert set(verdicts) <= {"pass", "unsupported", "skip"}
    assert verdicts["pass"] > 150


@pytest.mark.slow
@pytest.mark.parametrize("example", [False, True], ids=["skeleton", "example"])
def test_the_suite_finds_no_defect(tmp_path, example):
    library = native.build(native.write(tmp_path, example=example))
    report = tmp_path / "report.json"
    ended = subprocess.run(
        [sys.executable, "-m", "pjrt_hub.cli", "check", library, "--output", report],
        capture_output=True,
        text=True,
        timeout=280,
    )
    results = json.loads(report.read_text())["results"]
    assert ended.returncode == 0, ended.stdout
    verdicts = Counter(each["verdict"] for each in results)
    assert set(verdicts) == {"pass", "unsupported", "skip"}
    assert verdicts["pass"] > (270 if example else 200)
