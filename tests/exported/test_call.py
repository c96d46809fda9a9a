"""Exported functions with nested arguments and results, against numpy; and what is refused."""

import copy
import pickle
import re
from collections import OrderedDict, namedtuple
from traceback import format_exception

import ml_dtypes
import numpy as np
import pytest

import pjrt_hub
from pjrt_hub.errors import ClosedError, FileFormatError
from pjrt_hub.running.compilation import isolation

from .conftest import RELEASES

WEIGHTS = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
X = np.array([0.1, -0.2, 0.3], np.float32)
GIVEN = {"a": WEIGHTS, "unused": np.zeros(1, np.int32)}
ONES = np.ones(8, np.float32)


def nested(x, scale):
    return np.tanh(WEIGHTS @ x) * scale


@pytest.mark.parametrize(
    ("isolated", "env", "started"),
    [
        (None, {}, 1),
        (None, {"PJRT_HUB_ISOLATE": "1"}, 1),
        (None, {"PJRT_HUB_ISOLATE": "0"}, 0),
        (None, {"PJRT_HUB_LAYERS": "trace"}, 0),
        (False, {"PJRT_HUB_ISOLATE": "1"}, 0),
        (True, {"PJRT_HUB_ISOLATE": "0"}, 1),
    ],
)
def test_it_compiles_in_a_process_of_its_own(load, monkeypatch, isolated, env, started):
    for name in ("PJRT_HUB_ISOLATE", "PJRT_HUB_LAYERS"):
        monkeypatch.setenv(name, env.get(name, ""))
    asked, compile = [], isolation.compile
    monkeypatch.setattr(isolation, "compile", lambda *all: asked.append(all) or compile(*all))
    with load("add", isolated=isolated) as add:
        add.compile()
    assert len(asked) == started


def test_arrays_and_buffers_in_a_buffer_out(load):
    add = load("add")
    result = add(np.arange(8, dtype=np.float32), ONES)
    assert isinstance(result, pjrt_hub.Buffer)
    assert result.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert add(add(ONES, ONES), add(ONES, ONES)).tolist() == [4] * 8
    assert add.compile() is add.compile()


@pytest.mark.parametrize("name", ["nested", *(f"nested-{release}" for release in RELEASES)])
def test_nested_arguments_and_results(load, name):
    """JAX 0.10.2 wrote one file, and every release that changed the form of files wrote one."""
    result = load(name)(GIVEN, X, scale=np.float32(2))
    assert list(result) == ["y", "z"]
    np.testing.assert_allclose(result["y"], nested(X, 2), rtol=1e-5)
    total, nothing, rest = result["z"]
    assert float(total) == pytest.approx(0.2)
    assert nothing is None
    np.testing.assert_array_equal(rest[0], X)


def test_python_numbers_and_lists_become_the_type(load):
    """A list may also stand for a tuple, as it must where arguments come as JSON."""
    result = load("nested")({"a": WEIGHTS.tolist(), "unused": [0]}, [1, 0, 0], scale=2)
    np.testing.assert_allclose(result["y"], nested([1, 0, 0], 2), rtol=1e-5)


def test_what_a_function_tells_about_itself(load):
    function = load("nested")
    assert list(map(str, function.inputs)) == ["f32[2,3]", "i32[1]", "f32[3]", "f32[]"]
    assert list(map(str, function.outputs)) == ["f32[2]", "f32[]", "f32[3]"]
    assert str(function.out_tree) == "{'y': *, 'z': (*, None, [*])}"
    assert [pjrt_hub.empty_aligned(1, each.element_type).dtype for each in function.inputs] == [
        each.dtype for each in function.inputs
    ]
    paths = ("args[0]['a']", "args[0]['unused']", "args[1]", "scale")
    assert function.function.input_paths == paths
    assert function.function.output_paths == ("result['y']", "result['z'][0]", "result['z'][2][0]")
    assert function.function.arguments == (0, 2, 3)
    assert function.nr_devices == 1


def test_namedtuples_need_no_class_and_may_have_the_users(load):
    class Point:
        def __init__(self, x, y):
            self.x, self.y = x, y

    x, y = np.array([1, 2], np.float32), np.float32(5)
    moved = load("point")
    for given in ((x, y), [x, y], {"x": x, "y": y}, namedtuple("P", "x y")(x, y)):
        result = moved(given)
        assert type(result).__name__ == "Point"
        assert result._fields == ("x", "y")
        assert float(result.x) == 5
        assert result.y[0].tolist() == [2, 3]
    result = load("point", types={"geometry.Point": Point})((x, y))
    assert type(result) is Point
    assert float(result.x) == 5


def test_ordered_dicts_keep_their_order(load):
    result = load("ordered_dict")(OrderedDict(a=np.float32(3), c=np.ones(2, np.float32)))
    assert type(result) is OrderedDict
    assert list(result) == ["z", "b"]
    assert float(result["z"]) == 3
    assert result["b"].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("platforms", np.array([0, 1, 2, 3], np.float32), 2 * np.sin([0, 1, 2, 3])),
        # JAX 0.10 gives this for jax.random.uniform(jax.random.key(42), (3,)); a key is its words.
        ("random_key", np.array([0, 42], np.uint32), [0.48870957, 0.67979717, 0.6162715]),
        ("bfloat16", np.array([1, 2, 3, 4], ml_dtypes.bfloat16), [2, 4, 6, 8]),
    ],
)
def test_the_platform_of_several_random_keys_and_bfloat16(load, name, given, wanted):
    result = load(name)(given)
    assert result.dtype == (ml_dtypes.bfloat16 if name == "bfloat16" else np.float32)
    np.testing.assert_allclose(np.asarray(result).astype(np.float32), wanted, rtol=1e-5)


def test_what_is_bound_need_not_be_given(load):
    bound = load("nested").bind(GIVEN)
    for scale in (1, 3):
        np.testing.assert_allclose(bound(X, scale=scale)["y"], nested(X, scale), rtol=1e-5)
    with pytest.raises(TypeError, match=r"takes 1 positional argument\(s\), 2 were given"):
        bound(GIVEN, X, scale=1)
    for wrong, given, message in (
        (ValueError, [{**GIVEN, "a": X}], "args[0]['a']: expected f32[2,3]"),
        (TypeError, [{**GIVEN, "unused": [1.5]}], "args[0]['unused']: expected i32[1]"),
        (TypeError, [GIVEN, X, X], "takes 2 more positional"),
    ):
        with pytest.raises(wrong, match=re.escape(message)):
            load("nested").bind(*given)


def test_what_is_bound_is_closed_with_the_rest(load):
    nested = load("nested")
    bound = nested.bind(GIVEN)
    bound(X, scale=1)
    nested.close()
    for use in (bound, lambda *args, **kwargs: nested(GIVEN, *args, **kwargs)):
        with pytest.raises(ClosedError, match="nested was closed"):
            use(X, scale=1)


def test_a_closed_function_or_client(load, client, path):
    with client.plugin.client() as own:
        add = pjrt_hub.load_exported(path("add"), client=own)
        add.compile()
    with pytest.raises(ClosedError, match="the client is closed"):
        add.compile()
    with pytest.raises(ClosedError, match="the client is closed"):
        pjrt_hub.load_exported(path("add"), client=own)
    add = load("add")
    add.close()
    with pytest.raises(ClosedError, match="add was closed"):
        add.compile()


def test_copies_and_pickles(load):
    function = load("nested")
    function(GIVEN, X, scale=1)
    assert pickle.loads(pickle.dumps(function.in_tree)) == function.in_tree
    again = copy.copy(function)(GIVEN, X, scale=2)["y"]
    np.testing.assert_allclose(again, nested(X, 2), rtol=1e-5)
    with pytest.raises(TypeError, match=r"cannot be pickled\n\nhint: load its file"):
        pickle.dumps(function)


NESTED_TREE = "args[0]: expected {'a': *, 'unused': *}, found"


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "error", "message"),
    [
        ("add", (ONES,), {}, TypeError, "add takes 2 positional argument(s), 1 were given"),
        ("add", (ONES,) * 3, {}, TypeError, "add takes 2 positional argument(s), 3 were given"),
        ("add", (ONES, ONES[:7]), {}, ValueError, "args[1]: expected f32[8], found f32[7]"),
        ("add", (ONES, ONES.astype(float)), {}, TypeError, "args[1]: expected f32[8], found f64"),
        ("add", (ONES, None), {}, TypeError, "args[1]: expected f32[8], found"),
        ("add", (ONES, "text"), {}, TypeError, "args[1]: expected f32[8], found"),
        ("add", ([1] * 8, [[1], [2, 3]]), {}, ValueError, "args[1]: expected f32[8]: "),
        ("add", (ONES, np.ma.masked_equal(ONES, 2)), {}, TypeError, "args[1]: the array is masked"),
        ("add", (ONES, [1j] * 8), {}, TypeError, "args[1]: expected f32[8], found complex<f64>[8]"),
        ("nested", (GIVEN, X), {}, TypeError, "of the arguments by name: scale missing"),
        ("nested", (GIVEN, X), {"scale": 1, "other": 2}, TypeError, "other unknown"),
        ("nested", (X, X), {"scale": 1}, TypeError, f"{NESTED_TREE} ndarray"),
        ("nested", ({"a": X}, X), {"scale": 1}, TypeError, f"{NESTED_TREE} a dict of 1"),
        ("nested", ({"a": X, "b": X}, X), {"scale": 1}, TypeError, "found a dict of 2: 'a', 'b'"),
    ],
)
def test_other_arguments(load, name, args, kwargs, error, message):
    with pytest.raises(error, match=re.escape(message)) as caught:
        load(name)(*args, **kwargs)
    assert "".join(format_exception(caught.value)).count("Traceback") == 1


@pytest.mark.parametrize("value", [None, "abcd", np.array("2026", "M8[Y]")])
def test_no_conversion_is_advised_of_what_has_no_numbers(load, value):
    with pytest.raises(TypeError, match=r"hint: give numbers, or an array or a buffer of them$"):
        load("add")(ONES, value)


def test_bytes_may_have_any_order(load):
    swapped = ONES.astype(">f4")
    assert load("add")(swapped, swapped).tolist() == [2] * 8
    assert load("add").bind(swapped)(swapped).tolist() == [2] * 8


@pytest.mark.parametrize("name", ["add", "symbolic"])
def test_what_is_bound_is_not_converted(load, name):
    with pytest.raises(TypeError, match=r"args\[0\]: expected f32\[.*\], found f64\[8\]"):
        load(name).bind(ONES.astype("float64"))


def test_masked_arrays_are_not_bound(load):
    with pytest.raises(TypeError, match=r"args\[0\]: the array is masked"):
        load("add").bind(np.ma.masked_equal(ONES, 1))


def test_buffers_that_cannot_be_used_are_named(load, client):
    """The program does not take args[0]['unused'], so that its own numbers are others."""
    nested = load("nested")
    buffer = client.buffer_from_host(X)
    with client.plugin.client() as other:
        foreign = other.buffer_from_host(X)
        with pytest.raises(ValueError, match=r"^args\[1\] is a buffer of another client"):
            nested(GIVEN, foreign, scale=1)
    buffer.delete()
    with pytest.raises(ClosedError, match=r"^args\[1\] is a buffer that was deleted"):
        nested(GIVEN, buffer, scale=1)


def test_buffers_of_other_types_are_named(load, client):
    add = load("add")
    with pytest.raises(ValueError, match=r"args\[1\] must be f32\[8\], .* shape \(7,\)") as caught:
        add(ONES, client.buffer_from_host(ONES[:7]))
    assert "".join(format_exception(caught.value)).count("Traceback") == 1
    with pytest.raises(TypeError, match=r"args\[0\] must be f32\[8\], .* elements of i32$"):
        add(client.buffer_from_host(ONES.astype(np.int32)), ONES)


def test_unordered_effects_are_told_and_run(load):
    function = load("unordered_effect")
    assert "Unordered" in function.function.unordered_effects[0]
    assert function(np.ones(2, np.float32)).tolist() == [1, 1]


def test_a_client_and_a_platform_and_no_such_file(client, path):
    with pytest.raises(TypeError, match="both a client and a platform"):
        pjrt_hub.load_exported(path("add"), client=client, platform="cpu")
    with pytest.raises(FileFormatError, match=r"'nowhere\.jaxexport' cannot be read: No such file"):
        pjrt_hub.load_exported("nowhere.jaxexport", client=client)
