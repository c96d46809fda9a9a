"""Exported functions with nested arguments and results, against numpy."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

from pjrt_hub import Buffer
from pjrt_hub.errors import ClosedError
from pjrt_hub.running.compilation import isolation

from .conftest import RELEASES

WEIGHTS = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
X = np.array([0.1, -0.2, 0.3], np.float32)
GIVEN = {"a": WEIGHTS, "unused": np.zeros(1, np.int32)}


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
    asked = []
    compiled = isolation.compile

    def compile(*given):
        asked.append(given)
        return compiled(*given)

    monkeypatch.setattr(isolation, "compile", compile)
    with load("add", isolated=isolated) as add:
        add.compile()
    assert len(asked) == started


def test_arrays_in_a_buffer_out(load):
    result = load("add")(np.arange(8, dtype=np.float32), np.ones(8, np.float32))
    assert isinstance(result, Buffer)
    assert result.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_result_is_an_argument(load):
    add = load("add")
    ones = np.ones(8, np.float32)
    assert add(add(ones, ones), add(ones, ones)).tolist() == [4] * 8


@pytest.mark.parametrize("name", ["nested", *(f"nested-{release}" for release in RELEASES)])
def test_nested_arguments_and_results(load, name):
    """As JAX 0.10.2 wrote it, and every release that changed the form of files."""
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
    assert function.function_name == "nested"
    assert list(map(str, function.inputs)) == ["f32[2,3]", "i32[1]", "f32[3]", "f32[]"]
    assert list(map(str, function.outputs)) == ["f32[2]", "f32[]", "f32[3]"]
    assert str(function.in_tree) == "(({'a': *, 'unused': *}, *), {'scale': *})"
    assert str(function.out_tree) == "{'y': *, 'z': (*, None, [*])}"
    assert function.function.input_paths == (
        "args[0]['a']",
        "args[0]['unused']",
        "args[1]",
        "scale",
    )
    assert function.function.output_paths == ("result['y']", "result['z'][0]", "result['z'][2][0]")
    assert function.function.arguments == (0, 2, 3)
    assert function.platforms == ("cpu",)
    assert function.calling_convention_version == 10
    assert function.stablehlo_version == "1.15.0"
    assert function.nr_devices == 1


def test_namedtuples_need_no_class(load):
    x, y = np.array([1, 2], np.float32), np.float32(5)
    moved = load("point")
    for given in ((x, y), [x, y], {"x": x, "y": y}, namedtuple("P", "x y")(x, y)):
        result = moved(given)
        assert type(result).__name__ == "Point"
        assert result._fields == ("x", "y")
        assert float(result.x) == 5
        assert result.y[0].tolist() == [2, 3]


def test_a_class_of_the_users(load):
    class Point:
        def __init__(self, x, y):
            self.x, self.y = x, y

    result = load("point", types={"geometry.Point": Point})((X[:2], np.float32(5)))
    assert type(result) is Point
    assert float(result.x) == 5


def test_ordered_dicts_keep_their_order(load):
    result = load("ordered_dict")(OrderedDict(a=np.float32(3), c=np.ones(2, np.float32)))
    assert type(result) is OrderedDict
    assert list(result) == ["z", "b"]
    assert float(result["z"]) == 3
    assert result["b"].tolist() == [2, 2]


def test_the_platform_of_several(load):
    result = load("platforms")(np.array([0, 1, 2, 3], np.float32))
    np.testing.assert_allclose(result, 2 * np.sin([0, 1, 2, 3]), rtol=1e-5)


def test_random_keys_are_their_words(load):
    drawn = np.asarray(load("random_key")(np.array([0, 42], np.uint32)))
    # What jax.random.uniform(jax.random.key(42), (3,)) gives in JAX 0.10.
    np.testing.assert_allclose(drawn, [0.48870957, 0.67979717, 0.6162715], rtol=1e-6)


def test_bfloat16(load):
    import ml_dtypes

    result = load("bfloat16")(np.array([1, 2, 3, 4], ml_dtypes.bfloat16))
    assert result.dtype == ml_dtypes.bfloat16
    assert np.asarray(result).astype(np.float32).tolist() == [2, 4, 6, 8]


def test_weights_are_moved_once(load):
    bound = load("nested").bind(GIVEN)
    for scale in (1, 3):
        np.testing.assert_allclose(bound(X, scale=scale)["y"], nested(X, scale), rtol=1e-5)
    with pytest.raises(TypeError, match=r"takes 1 positional argument\(s\), 2 were given"):
        bound(GIVEN, X, scale=1)
    with pytest.raises(ValueError, match=r"args\[0\]\['a'\]: expected f32\[2,3\]"):
        load("nested").bind({**GIVEN, "a": X})
    with pytest.raises(TypeError, match="takes 2 more positional"):
        load("nested").bind(GIVEN, X, X)


def test_what_is_bound_is_closed_with_the_rest(load):
    nested = load("nested")
    bound = nested.bind(GIVEN)
    bound(X, scale=1)
    nested.close()
    with pytest.raises(ClosedError, match="nested was closed"):
        bound(X, scale=1)


def test_it_compiles_once(load):
    add = load("add")
    assert add.compile() is add.compile()
