"""Which platforms JAX gets, in which order, under which names, and when they are loaded."""

from __future__ import annotations

import pytest

#: A function that says whether the library of the given path is in the process.
LOADED = """
def loaded():
    with open("/proc/self/maps") as maps:
        return sys.argv[1] in maps.read()
"""
DEFAULT = """
import jax
from clients import is_plugin
print("plugin" if is_plugin(jax.devices()[0].client) else "built in", jax.device_count())
"""


def test_nothing_is_registered_unasked(python):
    ended = python("import jax, jax._src.xla_bridge as xb\n" + DEFAULT + "print(*xb.backends())")
    assert (ended.status, ended.printed) == (0, "built in 1\ncpu\n"), ended.errors
    assert ended.errors == ""


def test_the_variable_registers_and_makes_the_default(python):
    ended = python(DEFAULT + "print(jax.devices('cpu')[0] != jax.devices()[0])", PJRT_HUB_JAX="cpu")
    assert (ended.status, ended.printed, ended.errors) == (0, "plugin 1\nTrue\n", "")


def test_the_program_registers(python):
    script = "import pjrt_hub.jax\nprint(pjrt_hub.jax.register('cpu'))\n"
    ended = python(script + DEFAULT)
    assert (ended.status, ended.printed) == (0, "hubcpu\nplugin 1\n"), ended.errors


@pytest.mark.parametrize(
    "file_name", ["xla_cpu_pjrt.so", "libpjrt_cpu.so", "pjrt_c_api_cpu_plugin.so"]
)
@pytest.mark.parametrize("how", ["the variable", "the program"])
def test_a_known_library_has_its_plugins_name_and_devices_by_its_path(
    python, library, tmp_path, file_name, how
):
    """Each generation has another name of the file; by itself, the plugin has four devices."""
    named = tmp_path / file_name
    named.symlink_to(library)
    script = f"import pjrt_hub.jax\npjrt_hub.jax.register({str(named)!r})\n"
    asked = {"PJRT_HUB_JAX": str(named)} if how == "the variable" else {}
    last = "import jax._src.xla_bridge as xb\nprint(*xb.backends())"
    ended = python(("" if asked else script) + DEFAULT + last, **asked)
    assert (ended.status, ended.printed) == (0, "plugin 1\ncpu hubcpu\n"), ended.errors


@pytest.mark.parametrize(
    ("platforms", "asked", "expected"),
    [
        ("cpu", "cpu", "built in 1"),
        ("hubcpu", "cpu", "plugin 1"),
        ("cpu,hubcpu", "cpu", "built in 1"),
        ("hubcpu,cpu", "cpu", "plugin 1"),
        ("mine", "mine=cpu,cpu", "plugin 1"),
        ("", "mine=cpu,cpu", "plugin 1"),
    ],
)
def test_jax_platforms_wins(python, platforms, asked, expected):
    ended = python(DEFAULT, JAX_PLATFORMS=platforms, PJRT_HUB_JAX=asked)
    assert (ended.status, ended.printed) == (0, expected + "\n"), ended.errors


def test_the_first_one_asked_for_is_the_default(python):
    """This holds whatever the hashes of strings are."""
    script = """
    import jax
    from jax._src import xla_bridge
    jax.devices()
    [name] = [n for n, c in xla_bridge.backends().items() if c is jax.devices()[0].client]
    print(name, len(xla_bridge.backends()))
    """
    for seed in ("0", "1", "2", "3"):
        ended = python(script, PJRT_HUB_JAX="one=cpu,two=cpu,three=cpu", PYTHONHASHSEED=seed)
        assert (ended.status, ended.printed) == (0, "one 4\n"), ended.errors


def test_a_priority_decides_otherwise(python):
    ended = python(
        "import pjrt_hub.jax\npjrt_hub.jax.register('cpu', priority=-1)\n" + DEFAULT,
    )
    assert (ended.status, ended.printed) == (0, "built in 1\n"), ended.errors


def test_nothing_is_loaded_before_jax_uses_it(python, library):
    ended = python(
        LOADED
        + """
import sys, jax
from jax._src import xla_bridge
print(loaded(), jax.devices(), "hubcpu" in xla_bridge._backend_factories, loaded())
import pjrt_hub
print(pjrt_hub.load("cpu").name, loaded())
""",
        str(library),
        PJRT_HUB_JAX="cpu",
        JAX_PLATFORMS="cpu",
    )
    assert ended.status == 0, ended.errors
    assert ended.printed == "False [CpuDevice(id=0)] True False\ncpu True\n"


def test_what_the_program_registers_the_variable_does_not_again(python):
    ended = python(
        """
        import pjrt_hub.jax
        pjrt_hub.jax.register("cpu", options={"cpu_device_count": 3})
        import jax
        from jax._src import xla_bridge
        print(jax.device_count(), sorted(set(xla_bridge.backends())))
        """,
        PJRT_HUB_JAX="cpu",
    )
    assert (ended.status, ended.printed) == (0, "3 ['cpu', 'hubcpu']\n"), ended.errors


def test_a_vendors_name_is_left_to_it(python, tmp_path):
    """This holds whichever of the two JAX asks first."""
    package = tmp_path / "vendor" / "jax_plugins" / "xla_cuda13"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def initialize():\n    print('the vendor')\n")
    script = f"""
    import sys
    sys.path.append({str(package.parents[1])!r})
    import pjrt_hub.jax
    print(pjrt_hub.jax.register("cuda"), pjrt_hub.jax.register("cuda13", name="mine"))
    try:
        pjrt_hub.jax.register("cuda", name="cuda")
    except Exception as exc:
        print(type(exc).__name__, exc)
    """
    ended = python(script)
    assert ended.status == 0, ended.errors
    assert ended.printed == (
        "hubcuda mine\nFrameworkError the platform cuda cannot be called 'cuda' in JAX: that name "
        "is another plugin's\n\nhint: leave the name out, which gives 'hubcuda', or take another\n"
    )


def test_a_refused_plugin_reads_in_our_words(python):
    ended = python(
        """
        import jax
        try:
            jax.devices()
        except RuntimeError as exc:
            print(exc)
        """,
        PJRT_HUB_JAX="cdua",
    )
    assert ended.status == 0, ended.errors
    assert ended.printed.startswith("Unable to initialize backend 'cdua': no plugin")
    assert "did you mean 'cuda'" in ended.printed


def test_a_library_that_is_no_plugin_is_refused(python, tmp_path):
    library = tmp_path / "pjrt_plugin_odd.so"
    library.write_bytes(b"no library")
    script = f"""
    import pjrt_hub.jax
    print(pjrt_hub.jax.register({str(library)!r}))
    import jax
    try:
        jax.devices()
    except RuntimeError as exc:
        print(exc)
    """
    ended = python(script)
    assert ended.status == 0, ended.errors
    assert ended.printed.startswith("odd\nUnable to initialize backend 'odd': ")
    assert "pjrt_plugin_odd.so" in ended.printed


def test_a_library_by_its_path(python):
    script = """
    import pjrt_hub, pjrt_hub.jax
    print(pjrt_hub.jax.register(pjrt_hub.fetch("cpu"), options={"cpu_device_count": 2}))
    """
    ended = python(script + DEFAULT.replace("\n", "\n    "))
    assert (ended.status, ended.printed) == (0, "hubcpu\nplugin 2\n"), ended.errors


TOO_LATE = "cpu cannot be registered: JAX has made its clients"
TOO_OLD = "JAX 0.4.31 is too old: plugins of pjrt-hub need 0.4.33"


@pytest.mark.parametrize(
    ("before", "error", "hint"),
    [
        ("import jax; jax.devices()", TOO_LATE, "hint: register it before the first array"),
        ("import sys; sys.modules['jax'] = None", "JAX cannot be imported", ""),
        ("import jax; jax.__version_info__, jax.__version__ = (0, 4, 31), '0.4.31'", TOO_OLD, ""),
    ],
    ids=["too late", "none", "too old"],
)
def test_a_jax_that_cannot_take_a_plugin_is_said(python, before, error, hint):
    ended = python(f"{before}\nimport pjrt_hub.jax\npjrt_hub.jax.register('cpu')")
    assert ended.status == 1
    assert f"FrameworkError: {error}" in ended.errors
    assert hint in ended.errors


@pytest.mark.parametrize("asked", ["cpu,", "=cpu", "UP=cpu", "mine="])
def test_a_malformed_variable_is_said(python, asked):
    """JAX logs what an entry point raises, and goes on without it."""
    ended = python(DEFAULT, PJRT_HUB_JAX=asked)
    assert (ended.status, ended.printed) == (0, "built in 1\n")
    assert f"ValueError: PJRT_HUB_JAX is {asked!r}" in ended.errors


def test_a_platform_called_cuda_without_a_gpu_is_warned_of(python):
    ended = python(DEFAULT, PJRT_HUB_JAX="cuda=cpu", JAX_PLATFORMS="cuda")
    assert "JAX makes no client of a platform that is called 'cuda'" in ended.errors
