"""The examples that are a single file each, tested by the values that they print."""

import importlib
import re
import sys

import numpy as np
import pytest

import pjrt_hub

from .conftest import EXAMPLES

PAGE = (EXAMPLES / "README.md").read_text(encoding="utf-8")


TANH = np.tanh(np.arange(8) * 0.25 + 1)


def numbers(text):
    return np.array(re.search(r"\[+([^]]*)\]", text)[1].replace(",", " ").split(), float)


def test_hello_prints_the_result_and_the_device(run):
    printed = run("hello.py")
    [result] = [line for line in printed.splitlines() if "tanh(a * b + 1) = [" in line]
    assert np.allclose(numbers(result), TANH, atol=1e-4)
    assert re.search(r"computed on .*cpu", printed, re.IGNORECASE)


def test_choose_gives_a_reason_for_each_plugin_mistake_and_platform(run):
    printed = run("choose.py")
    assert re.search(r"^  -> cpu +its hardware is present and its priority, 0, ", printed, re.M)
    assert re.search(r"^     tpu +its hardware is absent: ", printed, re.M)
    assert re.search(r"^  ok load +PJRT API 0\.\d+, extensions: .*FFI", printed, re.M)
    mistakes = re.findall(r"^  (\w+Error): ", printed, re.M)
    assert mistakes == ["PluginNotFoundError", "ValueError", "TypeError"]
    assert "did you mean 'cpu_device_count'?" in printed
    assert printed.endswith(": 4 devices\n")
    printed = run("choose.py", "tpu")
    assert re.search(r"^  -> tpu +", printed, re.M)
    assert re.search(r"^  no hardware +absent", printed, re.M)


def test_the_decoder_gives_the_tokens_of_jax(run, monkeypatch):
    jax = pytest.importorskip("jax")
    monkeypatch.syspath_prepend(EXAMPLES / "decoder")
    generate, export = (importlib.import_module(name) for name in ("generate", "export"))
    decode = jax.jit(export.decode)
    state, token, tokens = generate.empty_state(), np.int32(1), []
    for _ in range(200):
        result = decode(generate.random_weights(), state, token)
        state, token = result["state"], result["token"]
        tokens.append(int(token))
    for name in ("generate", "export"):
        del sys.modules[name]  # Other examples have modules of these names.
    assert len(set(tokens)) == 10
    assert list(map(int, run("decoder/generate.py", "200").split())) == tokens


def test_pipeline_computes_every_batch(run):
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 0.1, (256, 256)).astype(np.float32)
    batches = [rng.normal(0, 1, (256, 256)).astype(np.float32) for _ in range(12)]
    expected = [float(np.square(np.tanh(x @ weights) @ weights).mean()) for x in batches]
    *means, last = run("pipeline.py").splitlines()
    found = [float(re.fullmatch(r"batch +(\d+): ([\d.]+)", line)[2]) for line in means]
    assert np.allclose(found, expected, atol=2e-4)
    assert re.fullmatch(r"3 batches at once in one thread, .* for \d+ other things", last)


def test_sharded_training_is_that_of_one_device(run):
    rng = np.random.default_rng(0)
    truth = np.arange(1, 9, dtype=np.float32)
    x = rng.normal(0, 1, (256, 8)).astype(np.float32)
    y = x @ truth + rng.normal(0, 0.01, 256).astype(np.float32)
    weights, losses = np.zeros(8), []
    for _ in range(60):
        error = x @ weights - y
        losses.append(float(error @ error))
        weights -= 0.002 * error @ x
    printed = run("sharded.py")
    found = dict(re.findall(r"step +(\d+)  loss +([\d.]+)", printed))
    assert list(found) == ["0", "20", "40", "59"]
    assert np.allclose(float(found["0"]), losses[0], rtol=1e-5)
    assert np.allclose(float(found["59"]), losses[59], atol=1e-3)
    parts = re.findall(r"^cpu:(\d): \[([\d.]+), ([\d.]+)\]$", printed, re.M)
    assert [int(device) for device, *_ in parts] == [0, 1, 2, 3]
    found = np.array([part for _, *part in parts], float)
    assert np.allclose(found, weights.reshape(4, 2), atol=0.01)


def test_custom_call_gives_numpys_eigenvalues_and_its_exception(run):
    values, trace, error = run("custom_call.py").splitlines()
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert np.allclose(numbers(values), np.linalg.eigvalsh(a + a.T)[::-1], atol=1e-2)
    assert trace == "their sum is 60.0 and the trace 60.0"
    assert "eigenvalues: ValueError: the matrix is not finite (custom_call.py:" in error


def test_a_warm_start_compiles_nothing(run, tmp_path):
    folder = tmp_path / "model"
    first = run("warm_start.py", str(folder)).splitlines()
    kept = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    second = run("warm_start.py", str(folder)).splitlines()
    assert first[0] == "not compiled yet"
    assert re.fullmatch(r"kept its \d+ bytes", first[1])
    assert second == ["compiled before", first[2]]
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == kept

    rng = np.random.default_rng(0)
    up, down = (rng.normal(0, 0.2, size).astype(np.float32) for size in ((16, 64), (64, 4)))
    expected = np.tanh(np.linspace(-1, 1, 16, dtype=np.float32) @ up) @ down
    assert np.allclose(numbers(first[2]), expected, atol=2e-4)


def test_the_plugin_in_python_runs_hello_and_refuses_a_sine(run):
    client, result, refusal = run("python_plugin.py").splitlines()
    assert client == "<Client interpreter with 2 devices>"
    assert np.allclose(numbers(result), TANH, atol=1e-4)
    assert refusal.startswith("UnimplementedError of the plugin: ")
    assert "the interpreter has no sine" in refusal


COLUMNS = np.array([[1, 2, 0.5, 3], [0.5, 1, 1, 2], [0.1, 0.4, 0.9, 0.2]], np.float32)


def predicted():
    """Compute in numpy what the function of examples/exported/export.py returns."""
    scores = np.exp(COLUMNS.T @ np.array([[1.5, -2.0], [-0.5, 1.0], [0.25, 0.75]]) / 0.5)
    return scores / scores.sum(1, keepdims=True)


def test_an_exported_function_runs_without_jax(run):
    name, kinds, chances, refusal, jax = run("exported/run.py").splitlines()
    assert name == "predict, for cpu, cuda, tpu"
    assert kinds == f"kinds   {predicted().argmax(1).tolist()}"
    found = [float(word) for word in re.findall(r"[\d.]+", chances)]
    assert np.allclose(found, predicted().ravel(), atol=2e-3)
    assert refusal == "ValueError args[0]['width']: expected f32[4], found f32[3]"
    assert jax == "jax was imported: False"


def test_jax_runs_on_the_plugin(run):
    pytest.importorskip("jaxlib")  # not jax: a folder of tests has that name
    devices, weights, total = run("jax_plugin.py").splitlines()
    assert devices.count("(id=") == 4
    assert re.match(r"weights \[2\.0, -0\.5\] on ", weights)
    assert total == "the sum of four shards 4950.0"


def test_export_makes_the_exported_function_again(run, tmp_path):
    pytest.importorskip("jaxlib")  # not jax: a folder of tests has that name
    pytest.importorskip("flatbuffers")
    made = tmp_path / "predict.jaxexport"
    run("exported/export.py", str(made))
    with pjrt_hub.load_exported(made, platform="cpu", offline=True) as predict:
        flowers = dict(zip(("length", "width", "weight"), COLUMNS, strict=True))
        result = predict(flowers, temperature=np.float32(0.5))
        assert np.allclose(result["chances"], predicted(), atol=1e-5)
        assert predict.platforms == ("cpu", "cuda", "tpu")


def test_embed_prints_how_similar_sentences_are(run):
    two = ["How do I reset my password?", "I forgot my login credentials."]
    assert run("minilm/embed.py", *two) == "similarity 0.637\n"
    three = ["a cat", "a kitten", "the stock market"]
    rows = [line.split(maxsplit=3) for line in run("minilm/embed.py", *three).splitlines()]
    matrix = np.array([row[:3] for row in rows], dtype=float)
    assert [row[3] for row in rows] == three
    assert np.allclose(np.diag(matrix), 1)
    assert np.array_equal(matrix, matrix.T)
    assert matrix[0, 1] > 0.7 > 0.4 > max(matrix[0, 2], matrix[1, 2])
    assert "usage:" in run("minilm/embed.py", "alone", status=2)


SCRIPTS = [EXAMPLES / name for name in re.findall(r"^\| \[[^\]]*\]\(([^)]*\.py)\)", PAGE, re.M)]


def test_the_table_lists_every_script_of_one_file():
    assert {*EXAMPLES.glob("*.py")} <= {*SCRIPTS}
    folders = re.findall(r"^\| \[[^\]]*\]\((\w+)/", PAGE, re.M)
    assert {*folders} == {each.name for each in EXAMPLES.iterdir() if [*each.rglob("*.py")]}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_short_and_says_what_it_needs_and_how_it_is_run(script):
    lines = script.read_text(encoding="utf-8").splitlines()
    name = script.relative_to(EXAMPLES)
    [row] = re.findall(rf"^\| \[[^\]]*\]\({name}\) .*$", PAGE, re.M)
    assert row.endswith(f"| {len(lines)} |")
    assert len(lines) <= 80
    docstring = "\n".join(lines).split('"""')[1]
    assert re.search(r"^pip install ", docstring, re.M)
    assert re.search(rf"^python examples/{name}\b", docstring, re.M)
    assert f"`python examples/{name}" in row
