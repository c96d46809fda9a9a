"""Plugins in C and C++ that `pjrt-hub new NAME --c` writes build, pass checks and run in hosts."""

import shutil
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import native_plugin as native
import numpy as np
import pytest
from children import in_child

import pjrt_hub
from pjrt_hub.kit import authoring, conformance
from pjrt_hub.kit.conformance import Verdict

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))


#: They set which threads call an author's functions, and whether hosts reach the memory.
HOST = "plugin->host_memory = true;"
THREADS = {
    "each device's": HOST,
    "the caller's": f"{HOST} plugin->any_thread = true;",
    "the caller's, for far memory": "plugin->any_thread = true;",
    "one for all devices": f"{HOST} plugin->any_thread = plugin->asynchronous = true;",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return native.build(native.write(tmp_path_factory.mktemp("example")))


@pytest.fixture(params=THREADS)
def threaded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The worked example, built for one choice of the threads that call its functions."""
    source = native.write(tmp_path)
    text = source.read_text("utf-8")
    assert text.count(HOST) == 1
    source.write_text(text.replace(HOST, THREADS[request.param]), "utf-8")
    return native.build(source)


def test_the_header_is_made_of_the_declarations():
    import capi
    import plugin_header

    header = Path(authoring.__file__).parent / "c" / "pjrt_plugin" / "api.h"
    assert header.read_text() == plugin_header.text(capi.read())


@pytest.mark.parametrize("example", [False, True], ids=["skeleton", "example"])
@pytest.mark.parametrize("compiler", native.COMPILERS)
def test_it_compiles_without_a_warning(tmp_path, compiler, example):
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    source = native.write(tmp_path, "c++" if compiler.endswith("+") else "c", example=example)
    assert native.build(source, compiler, *native.STRICT).is_file()


def test_only_one_function_is_exported_and_what_an_author_writes_is_short(library, tmp_path):
    command = ["nm", "-D", "--defined-only", library]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [line.split()[-1] for line in printed.splitlines()] == ["GetPjrtApi"]
    assert len(native.write(tmp_path, example=False).read_text().splitlines()) <= 300


#: The first line of an author's function, and lines that also give the plugin an attribute.
DESCRIBE = "static void describe(Plugin *plugin) {"
ATTRIBUTE = """static PJRT_NamedValue generation;

static void describe(Plugin *plugin) {
  generation.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  generation.name = "generation";
  generation.name_size = strlen(generation.name);
  generation.type = PJRT_NamedValue_kInt64;
  generation.int64_value = 7;
  generation.value_size = 1;
  plugin->attributes = &generation;
  plugin->num_attributes = 1;"""


@pytest.fixture
def described(tmp_path: Path) -> Path:
    source = native.write(tmp_path, example=False)
    source.write_text(source.read_text("utf-8").replace(DESCRIBE, ATTRIBUTE), "utf-8")
    return native.build(source)


@in_child
def test_what_an_author_says_of_the_plugin_is_told(described):
    assert pjrt_hub.client(described).plugin.attributes == {"generation": 7}


#: Name -> a function of two arrays and of `m`, which is jax.numpy or numpy.
FUNCTIONS = {
    "add": lambda m, x, w: x + 1,
    "multiply": lambda m, x, w: x * x,
    "divide": lambda m, x, w: x / (x + 1),
    "minimum": lambda m, x, w: m.minimum(x, 2) - m.maximum(x, 3),
    "tanh": lambda m, x, w: m.tanh(x),
    "exp": lambda m, x, w: m.exp(-x),
    "matmul": lambda m, x, w: x @ w,
    "transposed": lambda m, x, w: x.T @ w.T,
    "constant": lambda m, x, w: x + m.array([1, 2, 3], m.float32),
    "booleans": lambda m, x, w: m.where(m.array([True, False, True]), x, -1),
    "integers": lambda m, x, w: x.astype(m.int32) * 3 > 7,
}


@pytest.mark.skipif(find_spec("jax") is None, reason="needs JAX")
@in_child(JAX_PLATFORMS="mychip")
def test_jax_runs_it(library):
    import jax
    import jax.numpy as jnp
    from jax._src import xla_bridge

    xla_bridge.register_plugin("mychip", library_path=library)
    assert len(jax.devices()) == 2
    x, w = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 2), np.float32)
    for name, function in FUNCTIONS.items():
        found = jax.jit(partial(function, jnp))(x, w)
        assert np.allclose(found, function(np, x, w), atol=1e-6), name
    assert np.allclose(jax.jit(jax.nn.relu)(x - 2), np.maximum(x - 2, 0), atol=1e-6)
    slope = jax.grad(lambda x, w: (jnp.tanh(x @ w).reshape(4) @ jnp.ones(4)) * 1.0)
    expected = (1 - np.tanh(x @ w) ** 2) @ w.T
    assert np.allclose(jax.jit(slope)(x, w), expected, atol=1e-6)


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


@in_child
def test_pjrt_hub_runs_text(threaded):
    client = pjrt_hub.client(threaded)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    kept, more = client.compile(PROGRAM)(x, np.ones((3, 2), np.float32))
    assert kept.tolist() == [[4.0, 13.0], [0.0, 4.0]]
    assert more.tolist() == [[True, False], [True, True]]


@pytest.mark.slow
def test_any_thread_serves_as_well(threaded):
    areas = ("buffers", "donation", "execute", "external", "transfers")
    report = conformance.run(threaded, areas=areas)
    assert report.defects == ()
    assert report.counts[Verdict.PASS] > 150


@pytest.mark.slow
@pytest.mark.parametrize("example", [False, True], ids=["skeleton", "example"])
def test_the_suite_finds_no_defect(tmp_path, example):
    report = conformance.run(native.build(native.write(tmp_path, example=example)))
    assert report.defects == ()
    assert report.counts[Verdict.PASS] > (270 if example else 200)
    assert report.counts[Verdict.UNSUPPORTED] > 0 < report.counts[Verdict.SKIP]
