"""Steps of exported functions with a state, by the names of their arguments and results."""

import numpy as np
import pytest

from pjrt_hub.frameworks.exported import specialisation

from .test_call import WEIGHTS, X

LEAVES = {"a": WEIGHTS, "unused": np.zeros(1, np.int32)}


@pytest.fixture
def step(load):
    """A function that returns its argument x, as the list result['z'][2]."""
    return load("nested").stepper(
        carry={"result['z'][2][0]": "args[1]"}, fixed={"args[0]": LEAVES}, state={"args[1]": X}
    )


def test_names_are_those_of_the_trees(step):
    for scale in (1, 2):
        y, total = step(np.float32(scale))
        np.testing.assert_allclose(y, np.tanh(WEIGHTS @ X) * scale, rtol=1e-5)
        assert float(total) == pytest.approx(0.2)
    assert step(3)[1].shape == ()  # Python's numbers become the type.
    assert list(step.state) == ["args[1]"]
    np.testing.assert_array_equal(step.state["args[1]"], X)
    kept = step.snapshot()
    step.reset({"args[1]": X * 2})
    np.testing.assert_allclose(step(1)[0], np.tanh(WEIGHTS @ X * 2), rtol=1e-5)
    step.reset(kept)
    np.testing.assert_allclose(step(1)[0], np.tanh(WEIGHTS @ X), rtol=1e-5)


def test_what_is_bound_is_fixed(load):
    step = (
        load("nested").bind(LEAVES).stepper({"result['z'][2][0]": "args[1]"}, state={"args[1]": X})
    )
    np.testing.assert_allclose(step(2)[0], np.tanh(WEIGHTS @ X) * 2, rtol=1e-5)


def test_a_container_stands_for_all_that_it_holds(load):
    """The function adds 1 to x and gives it as y's list; here (x, y) goes round."""
    step = load("point").stepper({"result.x": "args[0].y"}, {}, None)
    step.reset({"args[0].y": np.float32(5)})
    [moved] = [step(np.float32([1, 2]))]
    assert moved.tolist() == [2, 3]
    assert float(step.state["args[0].y"]) == 5


def test_wrong_names_and_values(load, step):
    nested = load("nested")
    with pytest.raises(
        ValueError, match=r"there is no 'args\[7\]'(.|\n)*hint: there are args\[0\]"
    ):
        nested.stepper({"result['y']": "args[7]"})
    with pytest.raises(ValueError, match="there is no 'y'"):
        nested.stepper({"y": "args[1]"})
    with pytest.raises(ValueError, match=r"result has 3 leaves, and args\[1\] 1"):
        nested.stepper({"result": "args[1]"})
    with pytest.raises(ValueError, match="does not use args"):
        nested.stepper({"result['z'][2][0]": "args[0]['unused']"})
    with pytest.raises(TypeError, match=r"a step takes scale; 2 were given"):
        step(1, 2)
    with pytest.raises(ValueError, match=r"result\['y'\] is f32\[2\], and args\[1\] takes"):
        nested.stepper({"result['y']": "args[1]"})
    with pytest.raises(ValueError, match=r"no result is carried(.|\n)*hint: f\.bind"):
        nested.stepper({})
    with pytest.raises(ValueError, match=r"args\[1\] is bound, so that it cannot be carried"):
        nested.bind(LEAVES, X).stepper({"result['z'][2][0]": "args[1]"})
    with pytest.raises(ValueError, match=r"carried arguments are args\[1\]; the state has scale"):
        step.reset({"scale": 1})
    with pytest.raises(ValueError, match=r"carried arguments are args\[1\]; the state has none"):
        step.reset({})
    with pytest.raises(TypeError, match=r"args\[1\]: the array is masked"):
        step.reset({"args[1]": np.ma.masked_equal(X, 1)})
    with pytest.raises(ValueError, match=r"args\[1\]: expected f32\[3\]"):
        step.reset({"args[1]": np.zeros(4, np.float32)})


def test_arrays_may_have_any_order_of_bytes(step):
    step.reset({"args[1]": (X * 2).astype(">f4")})
    np.testing.assert_allclose(step(1)[0], np.tanh(WEIGHTS @ X * 2), rtol=1e-5)


@pytest.mark.skipif(not specialisation.has_jaxlib(), reason="jaxlib is not installed")
def test_symbolic_dimensions_with_sizes(load):
    step = load("symbolic", dimensions={"b": 2}).stepper(
        {"result[0]": "args[0]"}, state={"args[0]": [[1, 2, 3], [1, 2, 3]]}
    )
    assert step().shape == (4, 3)
    with pytest.raises(ValueError, match=r"args\[0\]: expected f32\[2,3\], found f32\[3,3\]"):
        step.reset({"args[0]": np.ones((3, 3), np.float32)})
    with pytest.raises(ValueError, match=r"result\[1\] is f32\[4,3\], and args\[0\] takes f32"):
        load("symbolic", dimensions={"b": 2}).stepper({"result[1]": "args[0]"})


def test_without_a_state(load):
    step = load("nested").bind(LEAVES).stepper({"result['z'][2][0]": "args[1]"})
    for use in (lambda: step(1), lambda: step.state, step.snapshot):
        with pytest.raises(ValueError, match=r"no state\n\nhint: step\.reset\(state\)"):
            use()


def test_buffers_that_cannot_be_used_are_named(load, client, step):
    short = client.buffer_from_host(X[:2])
    with pytest.raises(ValueError, match=r"^args\[1\] must be f32\[3\], the buffer has the shape"):
        step.reset({"args[1]": short})
    with pytest.raises(ValueError, match=r"^scale must be f32\[\], the buffer has the shape"):
        step(short)
    with pytest.raises(ValueError, match=r"^args\[0\]\['a'\] must be f32\[2,3\], the buffer"):
        load("nested").stepper(
            {"result['z'][2][0]": "args[1]"}, fixed={"args[0]": {**LEAVES, "a": short}}
        )


@pytest.mark.parametrize(
    ("carry", "fixed", "state", "message"),
    [
        (
            {"result": "args[0]", "result.x": "args[0].x"},
            {},
            {},
            r"result and result\.x overlap: each may be named once",
        ),
        (
            {"result.x": "args[0].y", "result.y[0]": "args[0].y"},
            {},
            {},
            r"args\[0\]\.y and args\[0\]\.y overlap",
        ),
        (
            {"result.x": "args[0].y"},
            {"args[0]": ([1, 2], 5)},
            {},
            r"args\[0\]\.y and args\[0\] overlap",
        ),
        (
            {"result.x": "args[0].y"},
            {},
            {"args[0]": ([1, 2], 5), "args[0].y": 3},
            r"args\[0\] and args\[0\]\.y overlap",
        ),
    ],
)
def test_names_that_overlap(load, carry, fixed, state, message):
    with pytest.raises(ValueError, match=message):
        load("point").stepper(carry, fixed, state)
