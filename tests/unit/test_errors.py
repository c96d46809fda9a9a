"""The exception tree: every error tells what failed, where, why, and what to do next.

Failures that are cheap to cause are real; the others are built as the code that raises them does.
"""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pjrt_hub import errors, fetch, load
from pjrt_hub.finding.contract import headers, manifest
from pjrt_hub.finding.store import pins
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact


def tree(root: type[errors.PjrtHubError] = errors.PjrtHubError) -> Iterator[type]:
    yield root
    for cls in root.__subclasses__():
        if cls.__module__ == errors.__name__:
            yield from tree(cls)


CLASSES = sorted(set(tree()), key=lambda cls: cls.__name__)
#: Classes of plugins' own errors, whose messages come from the plugin and may lack a hint.
ANSWERS = [cls for cls in CLASSES if issubclass(cls, errors.PjrtError)]
OURS = [cls for cls in CLASSES if cls not in ANSWERS and cls is not errors.PjrtHubError]

ARGUMENTS = {
    "path": "/opt/plugin.so",
    "url": "https://host/plugin.whl",
    "need": "0.57",
    "have": "0.50",
    "signal": "SIGABRT",
    "returncode": -6,
    "stderr": "the last words",
    "seconds": 30.0,
    "expected": "sha256:aa",
    "actual": "sha256:bb",
    "function": "PJRT_Client_Create",
    "since": "0.60",
    "fault": "expired",
}


def made(cls: type[errors.PjrtHubError], **given: object) -> errors.PjrtHubError:
    """An error with the arguments that its class requires."""
    wanted = inspect.signature(cls).parameters
    needed = {
        name: ARGUMENTS[name]
        for name, parameter in wanted.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    }
    return cls("/opt/plugin.so cannot be used: it is cut", **{**needed, **given})


def test_an_error_of_c_has_one_hint():
    error = errors.ClosedError("made before a fork\n\nhint: make it in the child")
    assert (error.message, error.hint) == ("made before a fork", "make it in the child")
    assert str(error) == "made before a fork\n\nhint: make it in the child"


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_every_class_has_a_next_step(cls):
    error = made(cls)
    assert error.hint
    assert str(error) == f"{error.message}\n\nhint: {error.hint}"
    assert made(cls, hint="do this").hint == "do this"


@pytest.mark.parametrize("cls", ANSWERS, ids=lambda cls: cls.__name__)
def test_every_answer_of_a_plugin_has_its_code_and_function(cls):
    error = cls("PJRT_Client_Create: no device", function="PJRT_Client_Create")
    assert (error.code, error.function) == (cls.code, "PJRT_Client_Create")
    assert cls.__doc__


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_what_a_class_carries_is_documented(cls):
    """Every argument of `__init__` is described in the docstring of the class or of a base."""
    documented = "".join(inspect.getdoc(each) or "" for each in cls.__mro__ if each in CLASSES)
    names = set(inspect.signature(cls).parameters) - {"message"}
    assert [name for name in names if f"{name}:" not in documented] == []
    assert cls.__name__ in (errors.__doc__ or "") or cls in ANSWERS


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


#: Failures of every part: the class, words of the message, and a call that raises it.
REAL: list[tuple[str, str, Callable[[Path], object]]] = [
    ("PluginNotFoundError", "nosuch", lambda at: fetch("nosuch", offline=True)),
    ("PluginError", "absent.so", lambda at: load(at / "absent.so")),
    ("PluginLoadError", "a.so", lambda at: headers.inspect(written(at / "a.so", "<html>"))),
    ("ManifestError", "a.toml", lambda at: manifest.read(written(at / "a.toml", "name = 1"))),
    ("ManifestError", "rows.toml", lambda at: Artifact.from_row({"size": -1}, "rows.toml")),
    ("CacheError", "'x'", lambda at: Cache.from_env({"PJRT_HUB_SYSTEM_CACHE": "x"})),
    ("OfflineError", "jax-rocm7-pjrt", lambda at: fetch("rocm", offline=True)),
    ("LockFileError", "a.lock", lambda at: pins.read(written(at / "a.lock", "not = [toml"))),
]


@pytest.mark.parametrize(("name", "place", "fail"), REAL)
def test_a_real_failure_names_its_place_and_the_next_step(name, place, fail, tmp_path, monkeypatch):
    monkeypatch.setenv("PJRT_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PJRT_HUB_LOCK", "0")
    with pytest.raises(getattr(errors, name)) as caught:
        fail(tmp_path)
    assert place in caught.value.message
    assert caught.value.hint
