"""What cannot be called so, or not here: each with its error and its words."""

from __future__ import annotations

import re
from traceback import format_exception

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub.errors import ClosedError, FileFormatError, NotRunnableError

ONES = np.ones(8, np.float32)
GIVEN = {"a": np.ones((2, 3), np.float32), "unused": np.zeros(1, np.int32)}
X = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((ONES,), TypeError, "add takes 2 positional argument(s), 1 were given"),
        ((ONES, ONES, ONES), TypeError, "add takes 2 positional argument(s), 3 were given"),
        ((ONES, ONES[:7]), ValueError, "args[1]: expected f32[8], found f32[7]"),
        ((ONES, ONES.astype(float)), TypeError, "args[1]: expected f32[8], found f64[8]"),
        ((ONES, None), TypeError, "args[1]: expected f32[8], found"),
        ((ONES, "text"), TypeError, "args[1]: expected f32[8], found"),
        (([1] * 8, [[1], [2, 3]]), ValueError, "args[1]: expected f32[8]: "),
        ((ONES, [1j] * 8), TypeError, "args[1]: expected f32[8], found complex<f64>[8]"),
    ],
)
def test_other_arguments(load, args, error, message):
    with pytest.raises(error, match=re.escape(message)) as caught:
        load("add")(*args)
    assert "".join(format_exception(caught.value)).count("Traceback") == 1


def test_buffers_of_other_types_are_named(load, client):
    add = load("add")
    with pytest.raises(ValueError, match=r"args\[1\]: expected f32\[8\], found f32\[7\]") as caught:
        add(ONES, client.buffer_from_host(ONES[:7]))
    assert "".join(format_exception(caught.value)).count("Traceback") == 1
    with pytest.raises(TypeError, match=re.escape("args[0]: expected f32[8], found i32[8]")):
        add(client.buffer_from_host(ONES.astype(np.int32)), ONES)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((GIVEN, X), {}, "of the arguments by name: scale missing"),
        ((GIVEN, X), {"scale": 1, "other": 2}, "other unknown"),
        ((X, X), {"scale": 1}, "args[0]: expected {'a': *, 'unused': *}, found ndarray"),
        (({"a": X}, X), {"scale": 1}, "args[0]: expected {'a': *, 'unused': *}, found a dict of 1"),
        (({"a": X, "b": X}, X), {"scale": 1}, "found a dict of 2: 'a', 'b'"),
    ],
)
def test_other_trees(load, args, kwargs, message):
    with pytest.raises(TypeError, match=re.escape(message)) as caught:
        load("nested")(*args, **kwargs)
    assert "".join(format_exception(caught.value)).count("Traceback") == 1


def test_fractions_are_no_integers(load):
    with pytest.raises(TypeError, match=re.escape("args[0]['unused']: expected i32[1]")):
        load("nested").bind({**GIVEN, "unused": [1.5]})


def test_a_platform_that_is_not_in_it(load):
    with pytest.raises(NotRunnableError, match="was exported for cuda, and not for cpu") as caught:
        load("cuda_only")
    assert caught.value.reasons == ("it was exported for cuda, and not for cpu",)


def test_ordered_effects(load):
    with pytest.raises(NotRunnableError, match=r"ordered effects .*Ordered"):
        load("ordered_effect")


def test_unordered_effects_are_told_and_run(load):
    function = load("unordered_effect")
    assert "Unordered" in function.function.unordered_effects[0]
    assert function(np.ones(2, np.float32)).tolist() == [1, 1]


def test_a_client_and_a_platform(client, path):
    with pytest.raises(TypeError, match="both a client and a platform"):
        pjrt_hub.load_exported(path("add"), client=client, platform="cpu")


def test_after_close(load):
    add = load("add")
    add(ONES, ONES)
    add.close()
    with pytest.raises(ClosedError, match="add was closed"):
        add(ONES, ONES)


def test_no_such_file(client):
    with pytest.raises(FileFormatError, match=r"'nowhere\.jaxexport' cannot be read: No such file"):
        pjrt_hub.load_exported("nowhere.jaxexport", client=client)
