"""What a start imports, and when: each module delays the first result."""

import json
import textwrap
from pathlib import Path

import finished
import pytest
from children import ADD, PLATFORM

#: Code that defines `mark()`, which prints the imported modules.
MARK = "import json, sys\ndef mark(): print(json.dumps(list(sys.modules)))\n"
#: Modules that making a client must not import; compile options and numpy import some of them.
SPARED = {"click", "dataclasses", "email", "httpx", "importlib.metadata", "importlib_metadata"}
SPARED |= {"logging", "packaging", "platformdirs", "rich", "shutil", "subprocess", "tempfile"}
SPARED |= {"hashlib", "html", "pickle", "pjrt_hub.finding.store.lock"}
SPARED |= {f"pjrt_hub.finding.store.cache.{each}" for each in ("audit", "eviction")}
SPARED |= {f"pjrt_hub.running.extensions.{each}" for each in ("custom_calls", "profiler")}
#: Modules that only a compilation needs, and that making a client must not import.
LATE = {"inspect", "numpy", "pjrt_hub.running.program.compile_error"}
LATE |= {"pjrt_hub.running.distributed.kv_store", "pjrt_hub.running.client.topology"}


@pytest.fixture
def run(client, clean_env):
    """Run code in a fresh process, after the plugin's first contact and first client elsewhere."""
    del client

    def run(code: str) -> list[str]:
        child = finished.python("-c", MARK + textwrap.dedent(code), seconds=120, env=clean_env)
        assert child.returncode == 0, child.stderr
        return child.stdout.splitlines()

    return run


def modules(line: str) -> set[str]:
    return set(json.loads(line))


def test_a_first_result_imports_what_it_needs_and_numpy_while_the_compiler_works(run):
    code = f"""
    mark()
    import pjrt_hub
    client = pjrt_hub.client({PLATFORM!r})
    mark()
    client.compile({str(ADD)!r})
    mark()
    """
    before, made, compiled = map(modules, run(code))
    assert (SPARED | LATE) & (made - before) == set()
    assert "numpy" in compiled


@pytest.mark.parametrize("broken", ["sys.modules['numpy'] = None", "sys.path.insert(0, folder)"])
def test_a_numpy_that_cannot_be_imported_is_told_of_where_it_is_needed(
    run, tmp_path: Path, broken: str
):
    (tmp_path / "numpy.py").write_text("raise ImportError('a broken numpy')")
    code = f"""
    import pjrt_hub
    client, folder = pjrt_hub.client({PLATFORM!r}), {str(tmp_path)!r}
    {broken}
    print(client.compile({str(ADD)!r}).signature)
    try:
        client.buffer_from_host([1.0, 2.0])
    except ImportError as exc:
        print("numpy" in str(exc))
    """
    assert run(code)[-1] == "True"


def test_an_interrupted_import_ends_the_waiting_and_nothing_else(run, tmp_path: Path):
    (tmp_path / "numpy.py").write_text("raise KeyboardInterrupt")
    code = f"""
    import pjrt_hub
    client = pjrt_hub.client({PLATFORM!r})
    sys.path.insert(0, {str(tmp_path)!r})
    try:
        client.compile({str(ADD)!r})
    except KeyboardInterrupt:
        print("interrupted")
    sys.path.remove({str(tmp_path)!r})
    client.compile({str(ADD)!r})
    client.close()
    print("numpy" in sys.modules)
    """
    assert run(code) == ["interrupted", "True"]
