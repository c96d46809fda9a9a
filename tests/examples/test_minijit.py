"""minijit against numpy: random expressions, derivatives, its cache, and what it refuses."""

import ast
import operator
import re
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import pjrt_hub

from .conftest import EXAMPLES

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64")] + [BF16]
INTS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
BOOL = np.dtype(bool)
#: Whole numbers up to this are exact in a dtype, in whatever order they are added.
EXACT = {np.dtype("float16"): 2**10, np.dtype("float32"): 2**23, BF16: 2**7}
bounded = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

#: Names of functions of two values in the module `operator`, by kind.
OF_TWO = {
    "arithmetic": ("add", "sub", "mul"),
    "compare": ("lt", "le", "gt", "ge", "eq", "ne"),
    "logic": ("and_", "or_", "xor"),
}
NAMES = ("where", "maximum", "minimum", "broadcast_to")
NUMPY = SimpleNamespace(**{name: getattr(np, name) for name in NAMES})


def array_of(draw, dtype, shape):
    """Draw an array: any values of an integer type, else small whole numbers."""
    if dtype in INTS:
        return draw(arrays.arrays(dtype, shape))
    least, greatest = (0, 1) if dtype == BOOL else (-4, 4)
    return draw(arrays.arrays(np.int64, shape, elements=st.integers(least, greatest))).astype(dtype)


def axis_of(draw, x):
    axes = st.integers(-x.ndim, x.ndim - 1) if x.ndim else st.none()
    return draw(st.one_of(st.none(), axes, st.just(tuple(range(0, x.ndim, 2)))))


def step_of(draw, pool):
    """Draw an operation on values of a pool: a function of numpy or minijit and of such a pool."""
    i = draw(st.integers(0, len(pool) - 1))
    x = pool[i]
    peers = [
        j
        for j, y in enumerate(pool)
        if y.dtype == x.dtype and compatible(x.shape, y.shape) and x.size * y.size < 500
    ] or [i]
    j = draw(st.sampled_from(peers))
    names = ["transpose", "reshape", "compare", "where", "broadcast"]
    if x.dtype == BOOL or x.dtype in INTS:
        names += ["logic", "inv"]
    if x.dtype != BOOL:
        names += ["arithmetic", "extreme", "neg", "sum", "max", "min", "matmul", "scalar"]
        if x.dtype.kind != "u":
            names.append("abs")
    name = draw(st.sampled_from(names))
    if name in OF_TWO:
        apply = getattr(operator, draw(st.sampled_from(OF_TWO[name])))
        return lambda xp, pool: apply(pool[i], pool[j])
    if name == "extreme":
        which = draw(st.sampled_from(["maximum", "minimum"]))
        return lambda xp, pool: getattr(xp, which)(pool[i], pool[j])
    if name == "scalar":
        number = draw(st.integers(1, 3))
        return lambda xp, pool: number - pool[i] * number
    if name == "where":
        return lambda xp, pool: xp.where(pool[i] == pool[j], pool[i], pool[j])
    if name in ("neg", "abs", "inv"):
        apply = getattr(operator, name)
        return lambda xp, pool: apply(pool[i])
    if name == "broadcast":
        shape = (2, *x.shape)
        return lambda xp, pool: xp.broadcast_to(pool[i], shape)
    if name == "reshape":
        shape = draw(st.sampled_from([(-1,), (1, *x.shape), x.shape[::-1], (*x.shape, 1, 1)]))
        shape = (x.size,) if x.size == 0 and -1 in shape else shape
        return lambda xp, pool: pool[i].reshape(shape)
    if name == "transpose":
        order = draw(st.permutations(range(x.ndim)))
        return lambda xp, pool: pool[i].transpose(*order)
    if name == "matmul":
        if not x.ndim:
            return lambda xp, pool: pool[i] + pool[i]
        if x.ndim > 2:
            flipped = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
            return lambda xp, pool: (pool[i] @ pool[i].transpose(*flipped)).astype(x.dtype)
        # numpy gives float32 for the product of empty vectors, whatever their dtype is.
        return lambda xp, pool: (pool[i] @ pool[i].T).astype(x.dtype)
    axis, keepdims = axis_of(draw, x), draw(st.booleans())
    if name != "sum" and x.size == 0:  # numpy has no maximum of an empty array
        return lambda xp, pool: pool[i] - pool[j]

    def reduced(xp, pool):
        more = {"dtype": x.dtype} if xp is NUMPY and name == "sum" else {}
        return getattr(pool[i], name)(axis=axis, keepdims=keepdims, **more)

    return reduced


def compatible(*shapes):
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def exact(value):
    limit = EXACT.get(value.dtype)
    return limit is None or not value.size or np.abs(value.astype(np.float64)).max() <= limit


def plain(value):
    """Widen bfloat16, which numpy's tests do not compare."""
    return value.astype(np.float32) if value.dtype == BF16 else value


@bounded
@given(data=st.data())
def test_random_expressions_give_what_numpy_gives(minijit, client, data):
    draw = data.draw
    sizes = {"num_shapes": draw(st.integers(1, 3)), "max_dims": 3, "min_side": 0, "max_side": 3}
    shapes = draw(arrays.mutually_broadcastable_shapes(**sizes)).input_shapes
    dtypes = [draw(st.sampled_from([*FLOATS, *INTS, BOOL]))] * len(shapes)
    inputs = [array_of(draw, *each) for each in zip(dtypes, shapes, strict=True)]
    pool, steps = list(inputs), []
    with np.errstate(all="ignore"):
        for _ in range(draw(st.integers(1, 6))):
            step = step_of(draw, pool)
            value = np.asarray(step(NUMPY, pool))
            if exact(value) and value.size <= 2000:
                pool.append(value)
                steps.append(step)

    @minijit.jit(client=client)
    def replay(values):
        for step in steps:
            values = [*values, step(minijit, values)]
        return values

    results = replay(inputs)
    for found, expected in zip(results, pool, strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert np.array_equal(plain(np.asarray(found)), plain(expected))


SMOOTH = {"exp": (-2, 2), "log": (0.1, 4), "sqrt": (0.1, 4)}
SMOOTH |= {"tanh": (-2, 2), "sin": (-3, 3), "cos": (-3, 3)}


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_give_what_numpy_gives(minijit, client, name, dtype):
    x = np.linspace(*SMOOTH[name], 50, dtype=dtype)
    found = minijit.jit(getattr(minijit, name), client=client)(x)
    assert found.dtype == x.dtype
    assert np.allclose(found, getattr(np, name)(x), rtol=1e-14 if dtype == "float64" else 2e-6)


def test_division_power_and_mean_give_what_numpy_gives(minijit, client):
    x = np.linspace(0.5, 3, 12).reshape(3, 4)

    def function(x):
        return 1 / x, x / 3, x**2.5, 2**x, x.mean(), x.mean(0)

    found = minijit.jit(function, client=client)(x)
    for each, wanted in zip(found, function(x), strict=True):
        assert np.allclose(each, wanted, rtol=1e-13)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        *[((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 2)), ((3, 4), (4, 2)), ((5, 3, 4), (4, 2))],
        *[((5, 3, 4), (5, 4, 2)), ((2, 1, 3, 4), (5, 4, 2)), ((5, 3, 4), (4,)), ((0, 4), (4, 2))],
    ],
)
def test_products_of_matrices_have_numpys_shapes(minijit, client, x, y):
    x, y = (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in (x, y))
    found = minijit.jit(operator.matmul, client=client)(x, y)
    assert found.shape == (x @ y).shape
    assert np.array_equal(found, x @ y)


@pytest.mark.parametrize("order", [">", "<", "="])
def test_constants_keep_their_bits_in_either_byte_order(minijit, client, order):
    array = np.arange(5).astype(f"{order}i4")
    assert minijit.jit(lambda x: x + array, client=client)(1).tolist() == [1, 2, 3, 4, 5]
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 0.1]).astype(f"{order}f8")
    found = np.asarray(minijit.jit(lambda: odd, client=client)())
    assert found.tobytes() == odd.astype("=f8").tobytes()


@pytest.mark.parametrize(
    "cast", [("float32", "int32"), ("int32", "float64"), ("uint8", "bool"), ("bool", "int8")]
)
def test_astype_gives_what_numpy_gives(minijit, client, cast):
    x = np.array([0, 1, 2.5, 3]).astype(cast[0])
    found = minijit.jit(lambda x: x.astype(cast[1]), client=client)(x)
    assert found.dtype == cast[1]
    assert np.array_equal(found, x.astype(cast[1]))


def slope_by_differences(function, x, step=1e-6):
    slope = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        slope[index] = (function(up).item() - function(down).item()) / (2 * step)
    return slope


FUNCTIONS = {
    "*": lambda m, x: (x * x.T @ x).sum(),
    "/": lambda m, x: (x / (x * x + 1)).sum() + (1 / x).sum(),
    "**": lambda m, x: (abs(x) ** 1.5 + 2 ** (x * 0.3)).sum(),
    "power of both": lambda m, x: (abs(x) ** (x * 0.5)).sum(),
    "@ with vectors": lambda m, x: (x @ x.sum(0)) @ x.sum(1),
    "@ in batches": lambda m, x: (x.reshape(1, 3, 3) @ m.broadcast_to(x, (2, 3, 3))).max(),
    "exp log": lambda m, x: m.log(m.exp(x).sum(1)).sum(),
    "tanh sqrt": lambda m, x: m.tanh(m.sqrt(abs(x) + 1)).mean(),
    "sin cos": lambda m, x: (m.sin(x) * m.cos(x.T)).sum(),
    "max min": lambda m, x: x.max(0).sum() + x.min(axis=1, keepdims=True).sum() * x.max(),
    "maximum minimum": lambda m, x: (m.maximum(x, 0) * m.minimum(x, x.T)).sum(),
    "where": lambda m, x: m.where(x > 0.5, x * x, -x).sum(),
    "reshape transpose": lambda m, x: (x.reshape(9) * x.T.reshape(-1)).sum(),
    "astype": lambda m, x: (x.astype("float32").astype("float64") * x * 1e-3).sum() + x.sum(),
    "a number alone": lambda m, x: x.sum() * 1.0,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_slopes_are_those_of_differences(minijit, client, name):
    x = np.random.default_rng(7).normal(0.3, 1, (3, 3))
    function = minijit.jit(lambda x: FUNCTIONS[name](minijit, x), client=client)
    found = minijit.jit(minijit.grad(lambda x: FUNCTIONS[name](minijit, x)), client=client)(x)
    assert found.dtype == np.float64
    step = 1e-3 if name == "astype" else 1e-6
    assert np.allclose(found, slope_by_differences(function, x, step), rtol=1e-4, atol=1e-6)


def test_third_derivatives_and_slopes_that_equal_elements_share(minijit, client):
    once = minijit.grad(lambda x: x**4 + minijit.sin(x))
    thrice = minijit.jit(minijit.grad(minijit.grad(once)), client=client)
    assert thrice(np.float64(2)).item() == pytest.approx(48 - np.cos(2), rel=1e-12)
    slope = minijit.jit(minijit.grad(lambda x: x.max()), client=client)
    assert slope(np.float32([1, 3, 3, 2])).tolist() == [0, 0.5, 0.5, 0]


def test_what_a_closure_knows_of_the_argument_counts_as_constant(minijit, client):
    @minijit.jit(client=client)
    def function(x):
        y, z = x * 2, x * 3
        w = y * z
        return minijit.grad(lambda y: y * z)(y), minijit.grad(lambda y: y * w)(y)

    assert [each.item() for each in function(5.0)] == [15, 150]


def test_slopes_of_a_tree_and_zero_for_what_is_not_used(minijit, client):
    slope = minijit.grad(lambda tree, k: (tree["a"] * k).sum() + tree["b"][0])
    tree = {"a": np.ones(2, np.float32), "b": [1.0, np.float32(np.inf)]}
    found = minijit.jit(slope, client=client)(tree, 3.0)
    assert (found["a"].tolist(), found["b"][0].item(), found["b"][1].item()) == ([3, 3], 1, 0)


def test_a_signature_is_compiled_once(minijit, client):
    @minijit.jit(client=client)
    def function(tree, *, power=2):
        return {"out": (tree["x"] * power, [tree["y"]])}

    def call(x, y, **static):
        return function({"x": x, "y": y}, **static)

    x = np.arange(3, dtype=np.float32)
    call(x, x)
    call(x + 1, x * 2)
    assert function.cache_info() == (1, 1)
    assert function({"y": x, "x": x})["out"][1][0].tolist() == [0, 1, 2]  # keys may be in any order
    call(client.buffer_from_host(x), x)  # arrays and buffers share a compilation
    assert function.cache_info() == (3, 1)
    call(x, x, power=3)
    call(x.astype(np.float64), x)
    call(x[:2], x)
    call(x, [x])
    assert function.cache_info() == (3, 5)
    assert call(x, x, power=3)["out"][0].tolist() == [0, 3, 6]
    assert function.cache_info() == (4, 5)
    # Static arguments that are equal but of different types make different programs.
    function = minijit.jit(lambda x, *, n: x * n if type(n) is int else x, client=client)
    found = [function(np.int32([3]), n=n).tolist() for n in (2, 2.0, True, 1)]
    assert (found, function.cache_info().misses) == ([[6], [3], [3], [3]], 4)


def test_functions_run_on_the_processs_client_by_default(minijit, client, monkeypatch):
    monkeypatch.setenv("PJRT_HUB_PLATFORMS", "cpu")
    double = minijit.jit(lambda x: x * 2)
    a = double(3)
    assert a.client is pjrt_hub.client(shared=True)
    a.client.close()  # it stays open for its other holders
    b = double(4)
    assert (b.item(), b.client is a.client, double.cache_info().misses) == (8, True, 1)
    with pytest.raises(ValueError, match="client"):
        minijit.jit(lambda x: x * 2, client=client)(b)


def test_results_stay_on_the_device(minijit, client):
    double = minijit.jit(lambda x: x * 2, client=client)
    x = double(np.ones(4, np.float32))
    assert type(x) is pjrt_hub.Buffer
    assert double(double(x)).tolist() == [8, 8, 8, 8]


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        *[(True, "bool"), (3, "int32"), (2.5, "float32")],
        *[(np.int8(1), "int8"), (np.float64(1), "float64")],
    ],
)
def test_numbers_of_python_have_32_bits(minijit, client, given, dtype):
    same = minijit.jit(lambda x: x, client=client)
    assert same(given).dtype == dtype
    assert [each.dtype for each in same([given, given])] == [dtype] * 2


def test_programs_without_arguments_or_results(minijit, client):
    assert minijit.jit(lambda: (), client=client)() == ()
    assert minijit.jit(lambda: [7, {}], client=client)()[0].item() == 7
    x = np.float32([1, 2])
    same, twice = minijit.jit(lambda x: (x, x), client=client)(x)
    assert (same.tolist(), twice.tolist()) == ([1, 2], [1, 2])


def test_a_jit_within_a_jit_is_a_part_of_its_program(minijit, client):
    inner = minijit.jit(lambda x: minijit.tanh(x), client=client)
    outer = minijit.jit(lambda x: inner(x) * 2, client=client)
    assert outer(1.0).item() == pytest.approx(2 * np.tanh(1), rel=1e-6)
    assert inner.cache_info() == (0, 0)
    assert outer.stablehlo(1.0).count("stablehlo.tanh") == 1


def test_thousands_of_operations_are_no_recursion(minijit, client):
    def function(x):
        for _ in range(2_000):
            x = x + 1
        return x

    slopes = minijit.value_and_grad(function)
    assert minijit.jit(slopes, client=client).stablehlo(1.0).count("stablehlo.add") >= 2_000


REFUSED = {
    "+": (TypeError, lambda m, x, i, b: x + i, "+ of float32[2,3] and int32[2]: the dtypes"),
    "-": (ValueError, lambda m, x, i, b: x - x.T, "- of float32[2,3] and float32[3,2]: the shapes"),
    "/": (TypeError, lambda m, x, i, b: i / i, "/ of int32[2] and int32[2]: there is none"),
    "2.5": (TypeError, lambda m, x, i, b: i * 2.5, "*: 2.5 does not fit into int32[2]"),
    "text": (TypeError, lambda m, x, i, b: x + "a", "+: str: minijit has no <U1"),
    "complex": (TypeError, lambda m, x, i, b: x * 1j, "*: complex: minijit has no complex128"),
    "-bool": (TypeError, lambda m, x, i, b: -b, "negative of bool[2]: there is none"),
    "~": (TypeError, lambda m, x, i, b: ~x, "~ of float32[2,3]: there is none"),
    "exp": (TypeError, lambda m, x, i, b: m.exp(i), "exp of int32[2]: there is none"),
    "@": (ValueError, lambda m, x, i, b: x @ x, "@ of float32[2,3] and float32[2,3]: the columns"),
    "@ dtype": (TypeError, lambda m, x, i, b: i @ x, "@ of int32[2] and float32[2,3]: it takes"),
    "@ number": (ValueError, lambda m, x, i, b: x @ 2.0, "@ of float32[2,3] and float32[]"),
    "sum": (ValueError, lambda m, x, i, b: x.sum(2), "sum of float32[2,3] over axis 2"),
    "max": (TypeError, lambda m, x, i, b: b.max(), "max of bool[2]: there is none for bool"),
    "reshape": (ValueError, lambda m, x, i, b: x.reshape(4, -1), "reshape of float32[2,3] to (4, "),
    "transpose": (ValueError, lambda m, x, i, b: x.transpose(0, 2), "transpose of float32[2,3] by"),
    "where": (TypeError, lambda m, x, i, b: m.where(i, i, i), "where of int32[2], int32[2] and"),
    "astype": (TypeError, lambda m, x, i, b: x.astype("c8"), "astype of float32[2,3]: minijit has"),
    "broadcast": (ValueError, lambda m, x, i, b: m.broadcast_to(x, (3,)), "broadcast_to of float"),
    "if": (TypeError, lambda m, x, i, b: 1 if b else 2, "bool of bool[2]: a traced value holds no"),
    "float": (TypeError, lambda m, x, i, b: float(x), "float of float32[2,3]: a traced value"),
    "index": (TypeError, lambda m, x, i, b: x[0], "getitem of float32[2,3]: a traced value"),
    "numpy": (TypeError, lambda m, x, i, b: np.asarray(x), "array of float32[2,3]: a traced"),
    "result": (TypeError, lambda m, x, i, b: None, "the result of <lambda>: NoneType: minijit has"),
    "grad": (TypeError, lambda m, x, i, b: m.grad(lambda x: x)(x), "grad of <lambda>: it gave flo"),
    "grad i": (TypeError, lambda m, x, i, b: m.grad(lambda x: x)(i), "it needs traced floats"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_said_while_tracing(minijit, client, name):
    kind, function, text = REFUSED[name]
    arguments = np.zeros((2, 3), np.float32), np.zeros(2, np.int32), np.zeros(2, bool)
    traced = minijit.jit(lambda x, i, b: function(minijit, x, i, b), client=client)
    with pytest.raises(kind, match=re.escape(text)):
        traced(*arguments)
    assert traced.cache_info() == (0, 0)


def test_arguments_that_minijit_lacks_and_values_of_another_trace_are_refused(minijit, client):
    same = minijit.jit(lambda x: x, client=client)
    with pytest.raises(TypeError, match="minijit has no complex64"):
        same(np.complex64(1))
    with pytest.raises(TypeError, match="a: keywords are part of the program, so unhashable"):
        same(1, a=[1])
    with pytest.raises(TypeError, match="call it within a @jit"):
        minijit.grad(lambda x: x)(1.0)
    left = []
    minijit.jit(lambda x: left.append(x) or x, client=client)(1.0)
    with pytest.raises(TypeError, match="a value that another trace left behind"):
        minijit.jit(lambda x: x + left[0], client=client)(1.0)


def test_a_compilers_refusal_carries_the_program(minijit, client):
    from minijit.tensor import Tensor

    def wrong(x):
        return Tensor("stablehlo.tanh %s", (x,), (3,), x.dtype)

    with pytest.raises(minijit.CompileError, match="the compiler of cpu refused wrong") as caught:
        minijit.jit(wrong, client=client)(np.zeros(2, np.float32))
    assert "stablehlo.tanh %arg0 : (tensor<2xf32>) -> tensor<3xf32>" in caught.value.program
    assert isinstance(caught.value.__cause__, pjrt_hub.errors.PjrtError)


def test_the_network_learns_the_spirals(run):
    *_, loss, cache = run("minijit/mlp.py").splitlines()
    value, right = re.fullmatch(r"loss ([\d.]+), right in ([\d.]+)% of new points", loss).groups()
    assert float(value) < 0.02
    assert float(right) > 98
    assert cache == "1 compilation, 999 hits of the cache"


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], ids=str)
def test_reductions_over_no_axis_and_twice_the_same(minijit, client, dtype):
    """The random expressions do not try these two cases; numpy refuses the second one."""
    x = np.arange(24).reshape(2, 3, 4)[:, ::-1].astype(dtype)
    for axis, same in (((), ()), ((-2, 1), 1)):
        for name, how in (("sum", {"dtype": dtype}), ("max", {}), ("min", {})):
            reduce = minijit.jit(lambda x, f=name, axis=axis: getattr(x, f)(axis), client=client)
            wanted = getattr(x, name)(same, **how)
            assert np.array_equal(plain(np.asarray(reduce(x))), plain(wanted)), (name, axis)


def test_the_page_shows_the_code_that_runs():
    def lines(code):
        return [line.strip() for line in ast.unparse(ast.parse(code)).splitlines()]

    page = (EXAMPLES.parent / "docs" / "embedding.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    runs = lines((EXAMPLES / "minijit/minijit/jit.py").read_text(encoding="utf-8"))
    assert len(blocks) >= 4
    assert [line for block in blocks for line in lines(block) if line not in runs] == []


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


def test_the_readme_counts_the_lines_of_code():
    folder = EXAMPLES / "minijit"
    rows = re.findall(r"^\| `(\w+\.py)` \| (\d+) \|", (folder / "README.md").read_text(), re.M)
    for name, count in rows:
        source = (folder / "minijit" / name).read_text(encoding="utf-8")
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
                text = node.body[0]
                for number in range(text.lineno - 1, text.end_lineno):
                    lines[number] = ""
        code = [line for line in lines if line.strip() and not line.strip().startswith("#")]
        assert (name, int(count)) == (name, len(code))
    files = {path.name for path in (folder / "minijit").glob("*.py")} - {"__init__.py"}
    assert {name for name, _ in rows} == files
    assert sum(int(count) for name, count in rows if name != "operations.py") <= 205


def test_it_runs_on_the_reference_interpreter(minijit, client):
    pytest.importorskip("jaxlib")
    from pjrt_hub.kit import authoring
    from pjrt_hub.kit.authoring.reference import Reference

    def energy(x, w):
        h = minijit.tanh(x @ w + 1)
        return minijit.where(h > 0.5, h * h, -h).max(1).sum()

    x = np.random.default_rng(3).normal(0, 1, (3, 4)).astype(np.float32)
    w = np.random.default_rng(4).normal(0, 1, (4, 2)).astype(np.float32)
    h = np.tanh(x @ w + 1)
    with authoring.plugin(Reference()).client() as slow:
        found = minijit.jit(minijit.value_and_grad(energy), client=slow)(x, w)
        value, slope = map(np.asarray, found)
    assert np.allclose(value, np.where(h > 0.5, h * h, -h).max(1).sum(), rtol=1e-5)
    step = minijit.jit(energy, client=client)
    x, w = x.astype(np.float64), w.astype(np.float64)
    assert np.allclose(slope, slope_by_differences(lambda x: step(x, w), x), atol=1e-5)
