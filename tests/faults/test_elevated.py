"""A program with more rights than its caller opens nothing that its caller chose."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pjrt_hub
from pjrt_hub.finding.contract import variables

PACKAGE = Path(pjrt_hub.__file__).parents[1]
NOBODY = "nobody"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="only root can make a setuid program"
)

#: A program that passes its rights on to what it starts, as a wrapper of a daemon does.
WRAPPER = """
#include <unistd.h>
int main(int count, char **words) { return execv(words[1], words + 1), 1; }
"""

#: Everything that looks for files: the public functions, a plugin by its path, the cache.
SCRIPT = """
import json, logging, os, sys
sys.path.insert(0, sys.argv[1])
logging.basicConfig()
import pjrt_hub
from pjrt_hub.door import privilege

def attempt(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except (pjrt_hub.errors.PjrtHubError, OSError) as exc:
        return type(exc).__name__

said = [
    attempt(pjrt_hub.plugins),
    attempt(pjrt_hub.diagnose, "cpu"),
    attempt(pjrt_hub.cache),
    attempt(pjrt_hub.fetch, "cuda"),
    attempt(pjrt_hub.client, offline=True),
    attempt(pjrt_hub.load, sys.argv[2]),
]
print(json.dumps([privilege.reason(), said]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of root that everybody may enter."""
    folder = Path(tempfile.mkdtemp(prefix="elevated-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def evil(folder: Path) -> Path:
    """A folder of the caller's, with a file in every place where one could be looked for."""
    evil = folder / "evil"
    evil.mkdir()
    for name in ("pylock.pjrt.toml", "uv.toml", "pyproject.toml", ".netrc", "libevil.so"):
        (evil / name).write_text("evil")
    (evil / "pjrt_plugins" / "evil").mkdir(parents=True)
    (evil / "pjrt_plugins" / "evil" / "pjrt_plugin.toml").write_text("evil")
    subprocess.run(["chown", "-R", NOBODY, str(evil)], check=True)
    return evil


def compiled(folder: Path, name: str, source: str, *flags: str) -> Path:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    file = folder / f"{name}.c"
    file.write_text(source)
    command = [*compiler, "-w", *flags, "-o", str(folder / name), str(file)]
    subprocess.run(command, check=True, timeout=60)
    return folder / name


@pytest.fixture
def opened(folder, evil, strace):
    """`opened(wrapper)` gives what the script printed, and the caller's files that it opened."""
    plugin = compiled(folder, "p.so", "void *GetPjrtApi(void) {return 0;}", "-shared", "-fPIC")
    names = [row.name.replace("*", "CONFIG_FILE") for row in variables.rows()]
    env = {name: str(evil / name) for name in names}
    env |= {"HOME": str(evil), "PJRT_HUB_PROBE_SECONDS": "30", "PJRT_HUB_LOCK": ""}
    env |= {"PIP_INDEX_URL": evil.as_uri(), "NO_PROXY": "*"}

    def run(*wrapper: str, user: str = NOBODY) -> tuple[list, list[str]]:
        log = folder / "trace"
        python = [sys.executable, "-I", "-c", SCRIPT, str(PACKAGE), str(plugin)]
        command = [strace, "-f", "-u", user, "-e", "trace=%file", "-o", log, *wrapper, *python]
        clean = {key: value for key, value in env.items() if not key.startswith("PYTHON")}
        how = {"cwd": evil, "env": clean, "capture_output": True, "text": True, "timeout": 120}
        done = subprocess.run(command, **how)
        assert done.returncode == 0, done.stderr
        calls = re.findall(r"\b(\w+)\((?:AT_FDCWD, )?\"([^\"]*)\"", log.read_text(errors="replace"))
        touched = [
            f"{name} {path}"
            for name, path in calls
            if path.startswith(str(evil)) or not path.startswith("/")
            if name not in ("execve", "getcwd")
        ]
        return json.loads(done.stdout.splitlines()[-1]), touched

    return run


def test_an_elevated_program_opens_nothing_of_its_caller(opened, folder, tally):
    wrapper = compiled(folder, "wrapper", WRAPPER)
    wrapper.chmod(0o4755)
    (why, said), touched = opened(str(wrapper))
    if not why:
        pytest.skip("setuid programs do not work in the temporary folder")
    assert "runs as user 0" in why
    assert touched == []
    assert said[2] in (None, "CacheError")
    assert said[3] in ("CacheError", "OfflineError")
    assert said[5] == "PluginLoadError"
    tally("elevated: 0 paths of the caller opened, with every variable of the table set")


def test_without_more_rights_the_caller_is_heard(opened):
    (why, _), touched = opened(user="root")
    assert why == ""
    assert any(path.endswith("pylock.pjrt.toml") for path in touched)
    assert len(touched) > 5
