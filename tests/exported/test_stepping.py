"""Steps of exported functions with a state, by the names of their arguments and results."""

import numpy as np
import pytest

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
    with pytest.raises(ValueError, match=r"args\[1\]: expected f32\[3\]"):
        step.reset({"args[1]": np.zeros(4, np.float32)})
