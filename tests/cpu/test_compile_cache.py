"""Serialized executables and the compile cache, with the real plugin."""

import dataclasses
import hashlib
import logging
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from children import ADD, adds, command, in_child
from texts import identity

from pjrt_hub import CompileOptions, Program
from pjrt_hub.errors import (
    ClosedError,
    FileFormatError,
    IncompatiblePluginError,
    PjrtError,
    PjrtHubError,
)
from pjrt_hub.finding.store.cache.program_cache import ProgramCache
from pjrt_hub.running.compilation import compile_cache
from pjrt_hub.running.executable import serialized, signature_sources
from pjrt_hub.running.executable.serialized import Guards


def test_the_second_compilation_is_loaded(client, program, kept):
    first = client.compile(program("add"), cache=kept)
    second = client.compile(program("add"), cache=kept)
    (blob,) = kept.values()
    assert second.serialize() is blob  # the program was loaded, not compiled
    assert adds(first)
    assert adds(second)
    assert second.signature == first.signature


@in_child(TF_CPP_MIN_LOG_LEVEL="1")
def test_loading_prints_nothing_beside_jax(client):
    """The plugin of API 0.106 logs errors, which JAX does not silence."""
    assert adds(client.load(client.compile(ADD).serialize()))


def test_two_devices(pair, kept):
    for _ in range(2):
        executable = pair.compile(identity("2xf32"), CompileOptions(num_replicas=2), cache=kept)
        rows = [[pair.buffer_from_host([1.0, d.id], device=d)] for d in executable.devices]
        assert [out[0].tolist() for out in executable.execute(rows)] == [[1.0, 0.0], [1.0, 1.0]]
    assert len(kept) == 1


@pytest.fixture(scope="module")
def key_of(client, program):
    source = Program.of(program("add"))
    return lambda options=None, source=source, client=client: compile_cache.key(
        client, source, options or CompileOptions()
    )


def test_what_is_the_same_has_the_same_key(client, plugin, key_of):
    with plugin.client() as other:
        assert key_of(client=other) == key_of()
    one = CompileOptions(flags={"xla_cpu_enable_fast_math": True, "xla_step_marker_location": "1"})
    two = CompileOptions(flags=dict(reversed(one.flags.items())))
    assert key_of(one) == key_of(two)


def test_what_differs_has_another_key(client, pair, key_of):
    source = Program.of("func.func @main() { return }")
    keys = [
        key_of(),
        key_of(source=source),
        key_of(source=dataclasses.replace(source, format="hlo")),
        key_of(CompileOptions(flags={"xla_cpu_enable_fast_math": True})),
        key_of(CompileOptions(flags={"xla_cpu_enable_fast_math": False})),
        key_of(CompileOptions(device_ids=[[0]])),
        key_of(client=pair),
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "name", ["platform", "platform_version", "api_version", "plugin_sha256", "machine"]
)
def test_every_guard_is_in_the_key_and_refused_in_words(client, pair, key_of, monkeypatch, name):
    here = Guards.of(client)
    assert getattr(here, name) == getattr(Guards.of(pair), name) != ""
    plain, blob = key_of(), client.compile("func.func @main() { return }").serialize()
    elsewhere = here._replace(**{name: "another"})
    with pytest.raises(IncompatiblePluginError, match="another") as caught:
        client.load(elsewhere.seal(serialized.parse(blob).code))
    assert (caught.value.need, caught.value.have) == ("another", getattr(here, name))
    assert "compile the program again" in caught.value.hint
    monkeypatch.setattr(client, "_guards", elsewhere)
    assert key_of() != plain


@pytest.mark.parametrize("unknown", ["machine", "platform_version"])
def test_what_the_compiler_did_not_know_is_not_compared(client, program, unknown):
    code = serialized.parse(client.compile(program("add")).serialize()).code
    anywhere = Guards.of(client)._replace(**{unknown: ""})
    assert adds(client.load(anywhere.seal(code)))


def test_a_loaded_executable_gives_the_bytes_that_it_came_from(client, program):
    blob = client.compile(program("add")).serialize()
    for _ in range(3):
        executable = client.load(blob)
        assert executable.serialize() == blob
        blob = executable.serialize()
    assert adds(client.load(blob))
    executable.close()
    with pytest.raises(ClosedError):
        executable.serialize()


def test_every_cut_and_every_flipped_byte_is_refused(client, program):
    blob = client.compile(program("add")).serialize()
    for end in range(0, len(blob), 61):
        with pytest.raises(FileFormatError, match="not a serialized executable"):
            client.load(blob[:end])
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(blob), 300):
        changed = bytearray(blob)
        changed[place] ^= 0x11
        with pytest.raises(PjrtHubError):
            client.load(bytes(changed))


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"{}", b"[]", b"5", b"{", b"[" * 100_000),
        b'{"signature": null, "platform": []}',
        b'{"signature": [[[11, [8], null]], [], [], []]}',
    ],
)
def test_headers_of_junk(client, header):
    sealed = len(header).to_bytes(4, "little") + header
    with pytest.raises(FileFormatError, match="header cannot be read"):
        client.load(serialized.MAGIC + hashlib.sha256(sealed).digest() + sealed)


def test_the_signature_is_read_and_not_asked_for(client, program, monkeypatch):
    compiled = client.compile(program("add"))
    blob = compiled.serialize()
    assert serialized.parse(blob).signature == compiled.signature
    without = Guards.of(client).seal(serialized.parse(blob).code)
    assert client.load(without).signature == compiled.signature
    monkeypatch.setattr(signature_sources, "of_executable", lambda *_: 1 / 0)
    loaded = client.load(blob)
    assert loaded.signature == compiled.signature
    assert adds(loaded)
    with pytest.raises(ZeroDivisionError):
        client.load(without)


def test_what_cannot_be_loaded_is_compiled_again(client, program, kept, caplog):
    client.compile(program("add"), cache=kept)
    (name,) = kept
    whole = kept[name]
    refused = Guards.of(client).seal(b"what only the plugin finds wrong")
    with pytest.raises(PjrtError):
        client.load(refused)
    older = Guards.of(client)._replace(platform_version="older", plugin_sha256="0" * 64)
    of_another_version = older.seal(serialized.parse(whole).code)
    for broken in (b"", whole[:-1], refused, of_another_version, b"no bytes of ours"):
        kept[name] = broken
        with caplog.at_level(logging.WARNING):
            assert adds(client.compile(program("add"), cache=kept))
        assert "compiled again" in caplog.text
        caplog.clear()
        serialized.parse(kept[name])  # the new code is in the cache again


@pytest.mark.parametrize("fails", ["get", "put"])
def test_a_cache_that_fails_costs_only_time(client, program, caplog, fails):
    def fail(*_):
        raise ConnectionError("no server")

    cache = SimpleNamespace(**{"get": lambda key: None, "put": lambda key, code: None, fails: fail})
    with caplog.at_level(logging.WARNING):
        assert adds(client.compile(program("add"), cache=cache))
    assert "ConnectionError: no server" in caplog.text


def test_errors_of_a_compilation_are_not_hidden(client, kept):
    with pytest.raises(PjrtError):
        client.compile("func.func @main() { return %x }", cache=kept)
    assert kept == {}


@pytest.mark.parametrize("wrong", [5, "1"])
def test_what_is_no_cache(client, program, wrong):
    with pytest.raises(TypeError, match="cache is"):
        client.compile(program("add"), cache=wrong)


def test_a_plugin_without_a_cache(plugin, program):
    from pjrt_hub.running.client.plugin import Plugin

    with Plugin(plugin.api).client() as client:
        assert adds(client.compile(program("add")))
        with pytest.raises(ValueError, match="loaded without a compile cache"):
            client.compile(program("add"), cache=True)


def compile_add(client, *cache):
    """Print whether the program was loaded or compiled; `cache` is the argument of `compile`."""
    logging.basicConfig(stream=sys.stdout)
    exe = client.compile(ADD, **dict(zip(["cache"], cache, strict=False)))
    assert adds(exe)
    print("loaded" if exe._origin is not None else "compiled")


def test_the_cache_on_disk_serves_the_next_process(child, tmp_path):
    compile_it = partial(child, compile_add, True, PJRT_HUB_CACHE=str(tmp_path / "cache"))
    assert [compile_it() for _ in range(3)] == ["compiled\n", "loaded\n", "loaded\n"]
    (kept,) = (p for p in (tmp_path / "cache/v1/compiled").rglob("*") if p.is_file())
    kept.write_bytes(kept.read_bytes()[:-1])
    damaged, again = compile_it(), compile_it()
    assert "removed the damaged compiled program" in damaged
    assert damaged.endswith("compiled\n")
    assert again == "loaded\n"
    assert compile_it(XLA_FLAGS="--xla_cpu_enable_fast_math=true") == "compiled\n"


def compile_together(client, folder, me, other):
    """Compile with a cache whose look-up waits until the other process has also looked."""
    cache = client.plugin.policy.compile_cache
    get = type(cache).get

    def together(self, key):
        found = get(self, key)
        Path(folder, me).touch()
        while not Path(folder, other).exists():
            time.sleep(0.001)
        return found

    type(cache).get = together
    compile_add(client, True)


def test_two_processes_compile_the_same_at_once(child, tmp_path):
    """Each process waits until the other has looked, so that neither finds the program."""
    env = {**child.env, "PJRT_HUB_CACHE": str(tmp_path / "cache")}
    running = [
        subprocess.Popen(
            command(compile_together, str(tmp_path), *names),
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        for names in (("one", "two"), ("two", "one"))
    ]
    assert [each.communicate(timeout=120)[0] for each in running] == ["compiled\n"] * 2
    (kept,) = (p for p in (tmp_path / "cache/v1/compiled").rglob("*") if p.is_file())
    assert ".partial." not in kept.name
    again = child(compile_add, True, PJRT_HUB_CACHE=env["PJRT_HUB_CACHE"])
    assert again == "loaded\n"


@pytest.mark.parametrize(
    ("value", "place", "second"),
    [("1", "cache", "loaded\n"), ("DIR", "dir", "loaded\n"), ("0", None, "compiled\n")],
)
def test_the_variable(child, tmp_path, value, place, second):
    env = {"PJRT_HUB_CACHE": str(tmp_path / "cache")}
    env["PJRT_HUB_COMPILE_CACHE"] = str(tmp_path / "dir") if value == "DIR" else value
    assert (child(compile_add, **env), child(compile_add, **env)) == ("compiled\n", second)
    found = {name for name in ("cache", "dir") if (tmp_path / name / "v1/compiled").exists()}
    assert found == ({place} if place else set())
    assert child(compile_add, False, **env) == "compiled\n"


def test_without_a_word_nothing_is_cached(child, tmp_path):
    for said in ((), (False,)):
        child(compile_add, *said, PJRT_HUB_CACHE=str(tmp_path))
    assert list(tmp_path.rglob("compiled")) == []


def test_a_small_cache_forgets(client, program, tmp_path):
    size = len(client.compile(program("add")).serialize())
    kept = ProgramCache(tmp_path, max_nbytes=3 * size)
    for number in range(9):
        flags = {"xla_dump_max_hlo_modules": number}
        executable = client.compile(program("add"), CompileOptions(flags=flags), cache=kept)
        assert adds(executable)
        assert 0 < kept.nbytes() <= 3 * size
