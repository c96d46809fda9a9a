"""The layer `cache`: what one process compiled, the next process of any host loads.

A process that may not compile shows a hit: the layer `without` takes PJRT_Client_Compile away.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pjrt_hub.kit import tracing

HERE = Path(__file__).parent
LOADS = {"PJRT_HUB_LAYERS": "cache,without", "PJRT_HUB_WITHOUT": "PJRT_Client_Compile"}
KEEPS = {"PJRT_HUB_LAYERS": "cache"}
ADD = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.add %x, %x : tensor<4xf32>
  %z = stablehlo.maximum %y, %x : tensor<4xf32>
  return %z : tensor<4xf32>
}
"""
#: Compiles a program with options on one of several devices, and prints what it computes.
COMPUTE = """
import ast, sys
import numpy, pjrt_hub
given = ast.literal_eval(sys.argv[1])
client = pjrt_hub.client("cpu", options={"cpu_device_count": given.get("devices", 1)})
options = pjrt_hub.CompileOptions(flags=given.get("flags", {}))
exe = client.compile(given["program"], options, cache=False)
result = exe(client.buffer_from_host(numpy.array([-1, 0, 1, 2], numpy.float32)))
"""
PRINT = "print(result.tolist())"
RESULT = "[-1.0, 0.0, 2.0, 4.0]\n"
FLAGS = {"xla_cpu_enable_fast_math": False, "xla_llvm_disable_expensive_passes": True}


@pytest.fixture
def root(tmp_path):
    """The folder of the compile cache."""
    return tmp_path / "cache"


@pytest.fixture
def compute(run, root, clean_env):
    """Run pjrt-hub's own client; give its status, what it printed, and what went wrong."""
    own = {"JAX_PLATFORMS": "", "PJRT_HUB_COMPILE_CACHE": str(root)}
    own["PJRT_HUB_CACHE"] = clean_env["PJRT_HUB_CACHE"]

    def ends(env=KEEPS, then=PRINT, program=ADD, **given):
        given["program"] = program
        return run("-c", COMPUTE + then, repr(given), **{**own, **env})

    return ends


@pytest.fixture
def computes(compute):
    """Run it and demand the result; give what it wrote to stderr."""

    def ends(*args, **given):
        done = compute(*args, **given)
        assert (done.returncode, done.stdout) == (0, RESULT), done.stderr
        return done.stderr

    return ends


@pytest.fixture
def hits(compute):
    """Whether such a process needs no compiler."""

    def ends(env=LOADS, **given):
        done = compute({**LOADS, **env}, **given)
        if done.returncode:
            assert "PJRT_Client_Compile is taken away" in done.stderr
        return (done.returncode, done.stdout) == (0, RESULT)

    return ends


@pytest.fixture
def entries(root):
    """The files of programs; a small one is the hash of the plugin's library."""

    def found():
        files = [path for path in root.glob("v1/compiled/*/*") if path.is_file()]
        return [path for path in files if path.stat().st_size > 100]

    return found


def preloaded(folder: Path, layers: dict[str, str]) -> dict[str, str]:
    """Variables for a host that knows nothing of the layers."""
    return {**tracing.environment({}, "pad", folder), **layers, "PJRT_HUB_TRACE": ""}


# --- JAX, with the plugin under a name that JAX's own cache does not take


JAX = """
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(jax.devices(), "x")
spread = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("x")))
step = jax.jit(lambda x: jnp.tanh(x).sum() + x)
donated = jax.jit(lambda x: x + 1, donate_argnums=0)
print(len(step(spread).sharding.device_set), step(spread), donated(jnp.ones(3)))
print(jax.grad(lambda w: (jnp.sin(w) * w).sum())(jnp.ones(3)), jax.random.normal(jax.random.key(1)))
"""


@pytest.mark.parametrize(
    ("program", "result"), [(("-c", JAX), "4 ["), ((HERE / "train.py",), "0x")]
)
def test_the_second_process_of_jax_compiles_nothing(run, entries, tmp_path, program, result):
    pytest.importorskip("jax.numpy")
    plain = run(*program)
    assert plain.stdout.startswith(result), plain.stderr
    for layers in (KEEPS, LOADS):
        done = run(*program, **preloaded(tmp_path, layers))
        assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    assert len(entries()) > 5


# --- What is the same program


def test_only_the_same_is_loaded(computes, hits, tmp_path):
    computes(flags=FLAGS)
    assert hits(flags=FLAGS)
    assert hits(flags=dict(reversed(FLAGS.items())))
    assert not hits()
    assert not hits(flags={name: not value for name, value in FLAGS.items()})
    assert not hits(flags=FLAGS, devices=2)
    assert not hits(flags=FLAGS, program=ADD.replace("maximum", "maximum ").replace("%z", "%w"))
    assert not hits({"XLA_FLAGS": "--xla_cpu_enable_fast_min_max=true"}, flags=FLAGS)


def test_a_file_of_flags_counts_as_what_is_in_it(computes, hits, tmp_path):
    flags = tmp_path / "flags"
    env = {"XLA_FLAGS": str(flags)}
    flags.write_text("--xla_cpu_enable_fast_min_max=true")
    computes({**KEEPS, **env})
    assert hits(env)
    flags.write_text("--xla_cpu_enable_fast_min_max=false")
    assert not hits(env)


def test_another_file_of_the_same_library_is_the_same_plugin(computes, hits, library, tmp_path):
    """And one with a byte more is not."""
    copy = tmp_path / library.name
    copy.write_bytes(library.read_bytes())
    env = {"PJRT_HUB_PLUGIN_PATH": f"cpu={copy}"}
    computes()
    assert hits(env)
    with copy.open("ab") as file:
        file.write(b"\0")
    assert not hits(env)


def test_a_program_that_calls_its_process_is_not_kept(computes, entries):
    program = ADD.replace("}\n", "}\nfunc.func private @python_callback() { return }\n")
    assert "removed" not in computes(program=program)
    assert entries() == []


def test_an_accelerator_in_software(computes, hits):
    computes({"PJRT_HUB_LAYERS": "cache,discrete"})
    assert hits({"PJRT_HUB_LAYERS": "cache,without,discrete"})


# --- Entries that are of no use


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "refused", "linked", "open"])
def test_an_entry_of_no_use_is_made_again(computes, hits, entries, tmp_path, damage):
    computes()
    (entry,) = entries()
    whole = entry.read_bytes()
    if damage == "cut":
        entry.write_bytes(whole[:-1])
    elif damage == "flipped":
        entry.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    elif damage == "empty":
        entry.write_bytes(b"")
    elif damage == "refused":
        (other,) = (each for each in entry.parents[1].glob("*/*") if each != entry)
        entry.write_bytes(other.read_bytes())  # it is whole, and no program
    elif damage == "linked":
        entry.rename(tmp_path / "aside")
        entry.symlink_to(tmp_path / "aside")
    else:
        entry.chmod(0o622)
    said = computes()
    assert ("removed the damaged compiled program" in said) == (
        damage in ("cut", "flipped", "empty")
    )
    assert entry.stat().st_mode & 0o777 == 0o600
    assert not entry.is_symlink()
    assert hits()


@pytest.mark.parametrize("above", [0, 1, 3])
def test_what_others_can_write_is_not_used(computes, hits, entries, above):
    computes()
    (entry,) = entries()
    folder = entry.parents[above]
    folder.chmod(0o777)
    assert "others can write there" in computes()
    assert not hits()


def test_without_a_folder_to_write_it_compiles(computes, root):
    root.mkdir()
    (root / "v1").write_text("a file where the folder should be")
    assert computes().count(f"compiled programs are not kept: {root} has no room") == 1


def test_without_room_it_compiles(compute, entries):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    done = compute(then=f"{limit}client.compile({ADD.replace('%z', '%w')!r}, cache=False)\n{PRINT}")
    assert (done.returncode, done.stdout) == (0, RESULT)
    assert "has no room" in done.stderr
    assert len(entries()) == 1


@pytest.mark.parametrize("function", ["Serialize", "Serialize:null", "DeserializeAndLoad:null"])
def test_a_plugin_that_lacks_a_function_compiles(computes, entries, function):
    lacks = {"PJRT_HUB_LAYERS": "cache,without", "PJRT_HUB_WITHOUT": f"PJRT_Executable_{function}"}
    computes(lacks)
    assert entries() == []


def test_what_the_plugin_does_not_load_is_compiled(computes):
    loads = "PJRT_Executable_DeserializeAndLoad"
    for _ in range(2):
        computes({"PJRT_HUB_LAYERS": "cache,without", "PJRT_HUB_WITHOUT": loads})


# --- Where it is, and how much


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({"PJRT_HUB_COMPILE_CACHE": "{}/a/b"}, "a/b"),
        ({"PJRT_HUB_COMPILE_CACHE": "~/own", "HOME": "{}"}, "own"),
        ({"PJRT_HUB_COMPILE_CACHE": "0", "PJRT_HUB_CACHE": "{}/of plugins"}, "of plugins"),
        ({"PJRT_HUB_CACHE": "", "XDG_CACHE_HOME": "{}/xdg"}, "xdg/pjrt-hub"),
        ({"PJRT_HUB_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "{}"}, ".cache/pjrt-hub"),
    ],
)
def test_it_lies_where_the_compile_cache_does(computes, tmp_path, env, place):
    env = {name: value.format(tmp_path) for name, value in env.items()}
    computes({**KEEPS, "PJRT_HUB_COMPILE_CACHE": "", **env})
    (folder,) = tmp_path.rglob("compiled")
    assert folder == tmp_path / place / "v1" / "compiled"
    assert folder.stat().st_mode & 0o777 == (tmp_path / place).stat().st_mode & 0o777 == 0o700


def test_the_limit_holds_when_a_process_of_pjrt_hub_begins(computes, hits, entries):
    computes()
    assert hits({"PJRT_HUB_COMPILE_CACHE_NBYTES": "1000000"})
    assert not hits({"PJRT_HUB_COMPILE_CACHE_NBYTES": "1000"})
    assert entries() == []


# --- Several at once, and what a loaded program is


def test_processes_that_compile_at_once(compute, hits, entries):
    with ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(lambda _: compute(), range(3)))
    assert [(done.returncode, done.stdout, done.stderr) for done in ended] == [(0, RESULT, "")] * 3
    (entry,) = entries()
    assert [path.name for path in entry.parent.iterdir()] == [entry.name]
    assert hits()


def test_a_loaded_program_serializes_to_what_was_compiled(
    computes, compute, run, entries, tmp_path
):
    """XLA's plugins for CPUs would leave out the code."""
    computes()
    (entry,) = entries()
    keep = f"print(result.tolist()); open({str(tmp_path / 'blob')!r}, 'wb').write(exe.serialize())"
    done = compute(LOADS, keep)
    assert (done.returncode, done.stdout) == (0, RESULT), done.stderr
    load = "exe = client.load(open(sys.argv[2], 'rb').read())"
    script = (
        COMPUTE.replace('exe = client.compile(given["program"], options, cache=False)', load)
        + PRINT
    )
    done = run("-c", script, repr({}), tmp_path / "blob", JAX_PLATFORMS="")
    assert (done.returncode, done.stdout) == (0, RESULT), done.stderr
    code = entry.read_bytes()[-1000:]
    assert (tmp_path / "blob").read_bytes().endswith(code)


def test_a_program_whose_file_is_gone_is_not_serialized(computes, compute, entries):
    computes()
    (entry,) = entries()
    done = compute(LOADS, f"import os; os.unlink({str(entry)!r}); exe.serialize()")
    assert done.returncode == 1
    assert "NotFoundError" in done.stderr
    assert "compile cache" in done.stderr


def test_executables_and_their_views_are_told_apart(compute, computes):
    """Many are made and destroyed, so that addresses are used again."""
    many = """
from pjrt_hub.running.executable import serialized
other = given["program"].replace("add", "multiply")
codes = {}
for number in range(40):
    for text in (given["program"], other):
        again = client.compile(text, cache=False)
        codes.setdefault(text, set()).add(serialized.parse(again.serialize()).code)
        if number % 3:
            again.close()
print(*sorted(len(each) for each in codes.values()), len(set.union(*codes.values())))
"""
    assert compute(then=many).returncode == 0  # XLA may write the same code in several orders
    assert compute(LOADS, then=many).stdout == "1 1 2\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_an_elevated_process_has_no_cache(run, library):
    script = """
import ctypes, os, sys
entry = ctypes.CDLL(sys.argv[1]).GetPjrtApi
entry.restype = ctypes.c_void_p
from pjrt_hub.running.interpose import layers
if sys.argv[2:]:
    os.setresuid(65534, 0, 0)
print(layers.wrap(entry(), "cache") == entry())
"""
    assert run("-c", script, library).stdout == "False\n"
    assert run("-c", script, library, "elevated").stdout == "True\n"
