"""`pjrt-hub new`: its project installs and passes its tests; docs/authoring.md works to its end."""

import json
import re
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from pjrt_hub.cli.__main__ import run as cli
from pjrt_hub.finding.contract import manifest


@pytest.fixture
def venv(run, folder) -> Path:
    """The folder of programs of a clean environment that holds pjrt-hub and pytest."""
    run(sys.executable, "-m", "venv", "venv")
    run("venv/bin/pip", "install", "pjrt-hub", "pytest")
    return folder / "venv" / "bin"


def test_without_a_library_its_tests_say_where_to_put_one(run, folder, venv):
    said = json.loads(run("pjrt-hub", "new", "mychip", "--json"))
    place = folder / said["library"]
    assert said["folder"] == "mychip-pjrt"
    run(venv / "pip", "install", "-e", "mychip-pjrt")
    printed = run(venv / "pytest", "-q", cwd=folder / "mychip-pjrt", status=1)
    assert f"there is no library yet: put your PJRT plugin at {place}" in printed


def test_what_the_library_said_is_in_the_project(run, folder, library, row, extensions):
    run("pjrt-hub", "new", "mychip", "--library", library, "--license", "MIT", "--no-check")
    project = folder / "mychip-pjrt"
    [described] = manifest.read(project / "src" / "mychip_pjrt" / "pjrt_plugin.toml")
    assert (described.name, described.platform) == ("mychip", "cpu")
    assert [(each.name, each.type) for each in described.options] == [("cpu_device_count", "int64")]
    assert str(described.api_minimum) == str(described.api_maximum) == str(row.api_version)
    assert described.extensions == tuple(extensions)
    assert (project / "src" / "mychip_pjrt" / "mychip_pjrt.so").read_bytes() == library.read_bytes()
    about = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    assert about["license"] == "MIT"
    assert set(about["entry-points"]) == {"pjrt_plugins", "jax_plugins", "torch_xla.plugins"}


def test_two_runs_write_the_same(run, folder, library):
    def written(name: str) -> dict[Path, bytes]:
        run("pjrt-hub", "new", "mychip", "--library", library, "--no-check", "--output", name)
        files = [path for path in (folder / name).rglob("*") if path.is_file()]
        return {path.relative_to(folder / name): path.read_bytes() for path in files}

    assert written("one") == written("two")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("cuda", "is the name of another plugin"),
        ("cudo", "could be mistaken for 'cuda'"),
        ("My-Chip", "cannot name a plugin"),
    ],
)
def test_a_name_that_is_no_good_is_refused(capsys, tmp_path, name, why):
    assert cli(["new", name, "--output", str(tmp_path / "new")]) == 1
    assert why in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_folder_in_use_is_left_alone(capsys, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    assert cli(["new", "mychip", "--output", str(tmp_path)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.skipif(find_spec("torch_xla") is None, reason="needs torch_xla")
def test_torch_xla_registers_it(run, folder, library):
    """Its library is not loaded: torch_xla 2.8 sends structs that are too small for this one."""
    run("pjrt-hub", "pack", library, "--name", "mychip")
    [wheel] = (folder / "dist").glob("*.whl")
    run("python", "-m", "pip", "install", "--no-deps", "--target", "site", wheel)
    script = (
        "from torch_xla.experimental import plugins; plugin = plugins.default(); "
        "print(type(plugin).__name__, plugin.library_path(), plugin.client_create_options())"
    )
    env = {"PJRT_DEVICE": "MYCHIP", "MYCHIP_CPU_DEVICE_COUNT": "2"}
    printed = run("python", "-c", script, PYTHONPATH=str(folder / "site"), **env)
    place = folder / "site" / "mychip_pjrt" / "mychip_pjrt.so"
    assert printed.splitlines()[-1] == f"Plugin {place} {{'cpu_device_count': 2}}"


PAGE = (Path(__file__).parents[2] / "docs" / "authoring.md").read_text("utf-8")
BLOCKS = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(1200)
def test_every_command_of_the_page_works(run):
    """From its top to its end, and prints what the page says."""
    blocks = BLOCKS.findall(PAGE)
    script = "".join(text for kind, text in blocks if kind == "sh")
    printed = run("bash", "-exo", "pipefail", "-c", script)
    lines = printed.splitlines()
    for kind, text in blocks:
        if kind == "text":
            assert [line for line in text.splitlines() if line not in lines] == [], printed
