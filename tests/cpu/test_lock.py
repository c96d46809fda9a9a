"""How a project uses `pylock.pjrt.toml` with a real plugin: it is written and then enforced."""

import json
import os
import subprocess
import sys
from pathlib import Path

import finished
import pytest

pytestmark = pytest.mark.cpu("what locks hold")

HELLO = str(Path(__file__).parents[2] / "examples" / "hello.mlir")
COMMAND = [sys.executable, "-m", "pjrt_hub.cli"]


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def hub(tmp_path, project, clean_env):
    """Run `pjrt-hub` in the project's folder, with a separate cache and without an index."""
    without_index = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}
    env = {**clean_env, **without_index, "PJRT_HUB_CACHE": str(tmp_path / "cache")}

    def call(*args, status=0, cwd=project, **more):
        done = finished.run(*COMMAND, *args, cwd=cwd, env={**env, **more}, stdin=subprocess.DEVNULL)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return call


@pytest.fixture
def library(plugin):
    return Path(plugin.path)


def altered(library, folder):
    """A copy of the plugin with one more byte, which loads just as well."""
    copy = folder / library.name
    copy.write_bytes(library.read_bytes() + b"\0")
    return copy


@pytest.mark.api(">=0.115", "the registry locks it, and nothing is fetched")
def test_a_project_is_locked_and_runs(hub, project):
    done = hub("lock", "cpu", "--host", "linux-x86_64")
    assert done.stdout.splitlines()[1:] == [
        f"{project}/pylock.pjrt.toml: written, 1 build",
        "pip and uv leave out cpu: an archive is no wheel, or no index has it",
    ]
    text = (project / "pylock.pjrt.toml").read_text()
    assert 'requests = ["cpu"]\nhosts = ["linux-x86_64"]\n' in text
    assert "up to date" in hub("lock", "--check").stdout
    deep = project / "src" / "deep"
    deep.mkdir(parents=True)
    assert "f32" in hub("run", HELLO, "--arg", "f32[8]:1", "--arg", "f32[8]:1", cwd=deep).stdout
    assert hub("list").stdout.splitlines()[-1] == f"locked by {project}/pylock.pjrt.toml"
    doctor = hub("doctor", "cpu").stdout
    assert f"ok    lock: {project}/pylock.pjrt.toml allows cpu 0.11.2, and nothing else" in doctor
    done = hub("fetch", "cuda", status=3)
    assert f"the lock file {project}/pylock.pjrt.toml does not hold it" in done.stderr
    assert "`pjrt-hub lock cpu cuda13`" in done.stderr


def test_a_check_fails_where_the_file_would_change(hub, project):
    assert "would change" in hub("lock", "cpu", "--check", status=1).stdout
    assert not (project / "pylock.pjrt.toml").exists()
    hub("lock", "cpu", "--host", "linux-x86_64")
    done = hub("lock", "cpu", "cuda12", "--check", status=1)
    assert "cuda12 for linux-x86_64: nothing -> jax-cuda12-pjrt" in done.stdout
    told = json.loads(hub("lock", "--json", "--check").stdout)
    assert (told["path"], told["changes"]) == (str(project / "pylock.pjrt.toml"), [])
    assert (told["additions"], told["left_out"]) == ([], ["cpu"])
    assert [each["plugin"] for each in told["artifacts"]] == ["cpu"]


@pytest.mark.slow
def test_other_bytes_are_neither_chosen_nor_loaded(hub, project, library):
    copy = altered(library, project)
    hub("lock", "cpu")
    run = ("run", HELLO, "--arg", "f32[8]:1", "--arg", "f32[8]:1", "--platform")
    told = f"{project}/pylock.pjrt.toml does not lock the bytes of {copy}"
    done = hub(*run, copy, status=5)
    assert told in done.stderr
    assert f"`pjrt-hub lock {copy}`" in done.stderr
    done = hub(*run, "mine", status=3, PJRT_HUB_PLUGIN_PATH=f"mine={copy}")
    assert told in done.stderr
    # The locked plugin is used whatever the variable says, and without a lock the variable holds.
    assert "f32" in hub(*run, "cpu", PJRT_HUB_PLUGIN_PATH=f"mine={copy}").stdout
    assert "f32" in hub(*run, copy, PJRT_HUB_LOCK="0").stdout


@pytest.mark.slow
def test_a_library_of_ones_own_is_trusted_once_and_never_silently(hub, project, library, plugin):
    copy = altered(library, project)
    done = hub("lock", f"mine={copy}", status=1)
    assert "this release is in no registry that you trust" in done.stderr
    assert "nobody has said that it is to be trusted" in done.stderr
    assert not (project / "pylock.pjrt.toml").exists()
    done = hub("lock", f"mine={copy}", "--yes")
    assert "trusted, as --yes says" in done.stderr
    row = json.loads(hub("lock", "--json", "--check").stdout)["artifacts"][0]
    assert (row["plugin"], row["platform"], row["package"]) == ("mine", "mine", "mine")
    assert (row["api_version"], row["library"]) == (str(plugin.api_version), library.name)
    # It is fetched from the path of the copy, and its bytes must be the locked ones.
    assert f"no registry pins mine: use PJRT_HUB_LOCK={project}/pylock.pjrt.toml" in done.stdout
    named = {"PJRT_HUB_LOCK": str(project / "pylock.pjrt.toml")}
    run = ("run", HELLO, "--arg", "f32[8]:1", "--arg", "f32[8]:1", "--platform", "mine")
    assert f"PJRT_HUB_LOCK={project}/pylock.pjrt.toml" in hub(*run, status=3).stderr
    assert "f32" in hub(*run, **named).stdout
    assert "mine" in hub("cache", "list").stdout
    assert hub(*run, status=3).stdout == ""  # the cached plugin is not trusted without the lock
    copy.write_bytes(copy.read_bytes()[:-1] + b"\1")
    assert "nobody has said" in hub("lock", "--check", status=1).stderr
    assert "f32" in hub(*run, **named).stdout  # the cache still has the locked bytes


@pytest.mark.slow
def test_a_strangers_lock_makes_nobody_run_its_code(hub, project, library, tmp_path):
    """A cloned repository contains a library under a known name and a file that locks it."""
    copy = altered(library, project)
    hub("lock", f"mine={copy}", "--yes")
    path = project / "pylock.pjrt.toml"
    path.write_text(path.read_text().replace('"mine"', '"cpu"').replace("mine=", "cpu="))
    hub("cache", "clear")
    run = ("run", HELLO, "--arg", "f32[8]:1", "--arg", "f32[8]:1")
    for more in (("--platform", "cpu"), ()):
        assert "lock" in hub(*run, *more, status=3).stderr
    assert "lock" in hub("fetch", "cpu", status=3).stderr
    assert "0 B" in hub("cache", "list").stdout
    # A lock file that is checked or written again never makes the library's code run.
    ran = tmp_path / "ran"
    source = tmp_path / "evil.c"
    source.write_text(
        "#include <stdio.h>\n__attribute__((constructor)) static void run(void) "
        f'{{ fclose(fopen("{ran}", "w")); }}\nvoid *GetPjrtApi(void) {{ return 0; }}\n'
    )
    evil = project / "evil.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", evil, source], check=True, timeout=60)
    out = tmp_path / "trusted.lock"
    hub("lock", f"evil={evil}", "--yes", "--output", out)
    assert ran.exists()  # --yes allowed this run
    ran.unlink()
    path.write_text(out.read_text())
    hub("lock", "--check")
    hub("lock")
    assert not ran.exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<<<<<<< ours", "is malformed: it is not TOML"),
        ("format = 1", "has a form that nothing reads"),
    ],
)
def test_a_lock_that_cannot_be_read_stops_everything(hub, project, text, told):
    (project / "pylock.pjrt.toml").write_text(text)
    for command in (("list",), ("fetch", "cpu"), ("lock", "cpu")):
        done = hub(*command, status=1)
        assert told in done.stderr
        assert "hint:" in done.stderr
        assert "Traceback" not in done.stderr
    doctor = hub("doctor", status=1).stdout
    assert doctor.startswith("no    lock: the lock file")
    hub("fetch", "cpu", PJRT_HUB_LOCK="0")


def test_discovery_imports_nothing(tmp_path, clean_env):
    """The Python code of a plugin's package never runs, neither before nor after the choice."""
    code = """
    import sys
    from pjrt_hub.door import client
    client.plugins()
    client.choose("cpu")
    foreign = ("pjrt_plugins", "xla_plugins", "jax_plugins", "toy")
    print([name for name in sys.modules if name.split(".")[0] in foreign])
    """
    site = tmp_path / "site"
    for path, body in {
        "toy/__init__.py": "raise SystemExit('a plugin was imported')",
        "toy/pjrt_plugin.toml": 'schema = 1\nname = "toy"\nplatform = "toy"\n'
        '[[library]]\npath = "*.so"\n',
        "toy/toy.so": "no library",
        "toy-1.0.dist-info/entry_points.txt": "[pjrt_plugins]\ntoy = toy\n",
    }.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(body)
    paths = [str(site), *filter(None, [clean_env.get("PYTHONPATH")])]
    script = "\n".join(line[4:] for line in code.splitlines())
    own = {**clean_env, "PYTHONPATH": os.pathsep.join(paths)}
    done = finished.python("-c", script, env=own)
    assert done.stdout == "[]\n", done.stderr
