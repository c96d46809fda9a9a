"""Arrays as arguments: results are right, no memory is shared, and nothing leaks."""

import array

import ml_dtypes
import numpy as np
import pytest
from texts import adding, identity

from pjrt_hub import Buffer, CompileOptions, ExecuteOptions, empty_aligned
from pjrt_hub.errors import ClosedError

NUMBERS = np.arange(8, dtype=np.float32)
#: numpy's name of a dtype -> StableHLO's name.
DTYPES = {
    **{"bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "int4": "i4"},
    **{"uint8": "ui8", "uint16": "ui16", "uint32": "ui32", "uint64": "ui64", "float16": "f16"},
    **{"float32": "f32", "float64": "f64", "complex64": "complex<f32>", "bfloat16": "bf16"},
    **{"complex128": "complex<f64>", "float8_e4m3fn": "f8E4M3FN"},
}


@pytest.fixture(scope="module")
def same(client):
    """Programs that return their argument, for any dtype and shape, each compiled once."""
    compiled = {}

    def same(dtype, shape):
        kind = "".join(f"{size}x" for size in shape) + dtype
        if kind not in compiled:
            compiled[kind] = client.compile(identity(kind))
        return compiled[kind]

    return same


def test_arrays_and_buffers_mixed(executables, vector):
    add = executables("add")
    for _ in range(3):  # the first call goes through Python code
        for arguments in ((NUMBERS, NUMBERS + 1), (vector(), NUMBERS + 1), (NUMBERS, vector(1))):
            result = add(*arguments)
            assert isinstance(result, Buffer)
            assert result.tolist() == (2 * NUMBERS + 1).tolist()
        [[result]] = add.execute([[NUMBERS, vector(1)]])
        assert result.tolist() == (2 * NUMBERS + 1).tolist()
        [result], _event = add.execute_on([NUMBERS, vector(1)], add.devices[0])
        assert result.tolist() == (2 * NUMBERS + 1).tolist()


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
def test_every_dtype_and_rank(same, name, shape):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7
    program = same(DTYPES[name], shape)
    for turn in range(3):
        given = ((values + turn) % 7).astype(dtype)
        result = program(given).to_numpy()
        assert (result.dtype, result.shape) == (dtype, shape)
        assert result.tobytes() == given.tobytes()


@pytest.mark.parametrize("elements", [8, 5000, 300_000, 2_000_000])
@pytest.mark.parametrize("aligned", [True, False])
def test_the_array_may_change_at_once(client, elements, aligned):
    """This holds even if the memory could be shared or the program has not started yet."""
    program = client.compile(adding(f"{elements}xf32"))
    memory = empty_aligned((elements + 4,))
    given = memory[:elements] if aligned else memory[4:]
    for turn in range(5):
        given[:] = turn
        result = program(given, given)
        given[:] = -1
        assert (result.to_numpy() == 2 * turn).all()
        bound = program.bind(given, given)
        given[:] = -2
        assert (bound().to_numpy() == -2).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda a: np.asfortranarray(a),
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: a[::-1][::-1],
        lambda a: a.astype(a.dtype.newbyteorder(">")),
        lambda a: np.ndarray(a.shape, a.dtype, b"\0" + a.tobytes(), 1),
        lambda a: np.broadcast_to(a[0], (1, 3)).repeat(2, 0),
        lambda a: np.broadcast_to(np.float32(5), (2, 3)),
        lambda a: memoryview(a),
        lambda a: a.view(type("Mine", (np.ndarray,), {})),
    ],
    ids=["columns", "strides", "reversed", "order", "unaligned", "rows", "one", "view", "subclass"],
)
def test_however_it_lies(same, change):
    program = same("f32", (2, 3))
    plain = np.arange(6, dtype=np.float32).reshape(2, 3)
    program(plain)  # later arrays like this one take the compiled call path
    given = change(plain)
    for _ in range(2):
        assert program(given).tolist() == np.asarray(given).tolist()


def test_memory_of_others(same, executables):
    assert executables("scalar")(np.float32(1.5)).item() == 2.5
    assert same("f32", (3,))(array.array("f", [1, 2, 3])).tolist() == [1, 2, 3]
    assert same("ui8", (3,))(b"abc").tolist() == [97, 98, 99]


def test_dlpack(same, vector):
    class Lent:
        def __init__(self, memory):
            self.memory = memory

        def __dlpack__(self, **wishes):
            return self.memory.__dlpack__(**wishes)

        def __dlpack_device__(self):
            return self.memory.__dlpack_device__()

    memory = empty_aligned((8,))
    memory[:] = NUMBERS
    result = same("f32", (8,))(Lent(memory))
    memory[:] = -1
    assert result.tolist() == NUMBERS.tolist()
    with pytest.raises(TypeError, match=r"argument 0 of 1 must be f32\[8\], .* elements of f64"):
        same("f32", (8,))(Lent(np.arange(8.0)))


@pytest.mark.parametrize("warm", [True, False])
def test_what_is_refused(client, program, vector, warm):
    add = client.compile(program("add"))
    if warm:
        add(NUMBERS, NUMBERS)
    uses = [lambda b: add(NUMBERS, b), lambda b: add.execute([[vector(), b]])]
    uses.append(lambda b: add.bind(vector(), b))
    for given, kind, words in (
        (np.arange(8.0), TypeError, r'has elements of float64(.|\n)*astype\("float32"\)'),
        (np.arange(8, dtype=np.int32), TypeError, "has elements of int32"),
        (NUMBERS.astype(ml_dtypes.bfloat16), TypeError, "has elements of bfloat16"),
        (NUMBERS.astype(object), TypeError, "has elements of object"),
        (NUMBERS.astype("datetime64[s]"), TypeError, "has elements of datetime64"),
        (NUMBERS[:7], ValueError, r"has the shape \(7,\)"),
        (NUMBERS.reshape(2, 4), ValueError, r"has the shape \(2, 4\)"),
        (NUMBERS.reshape(8, 1), ValueError, r"has the shape \(8, 1\)"),
        (np.float32(1), ValueError, r"has the shape \(\)"),
        (1.0, TypeError, "in a Buffer or an array, not float"),
        (list(NUMBERS), TypeError, "in a Buffer or an array, not list"),
        (b"12345678", TypeError, "has elements of uint8"),
    ):
        for use in uses:
            with pytest.raises(kind, match=rf"argument 1 of 2 must be f32\[8\](.|\n)*{words}"):
                use(given)
    with pytest.raises(TypeError, match="masked"):
        add(NUMBERS, np.ma.masked_array(NUMBERS, NUMBERS > 3))
    assert add(NUMBERS, NUMBERS).tolist() == (2 * NUMBERS).tolist()


def test_donation(executables, vector):
    """The call donates its own temporary buffer, not the user's array."""
    given, kept = NUMBERS.copy(), vector(1)
    for _ in range(3):
        assert executables("donate")(given, kept).tolist() == (2 * NUMBERS + 1).tolist()
        assert executables("donate")(given, given).tolist() == (2 * NUMBERS).tolist()
    assert given.tolist() == NUMBERS.tolist()
    taken = vector()
    executables("donate")(taken, given)
    with pytest.raises(ClosedError, match="argument 0 is a buffer that was deleted or donated"):
        executables("donate")(taken, given)


def test_a_parameter_by_columns(client):
    options = CompileOptions(argument_layouts=[("f32", (2, 3), (0, 1))])
    program = client.compile(identity("2x3xf32"), options)
    [parameter] = program.signature.parameters
    assert parameter.layout == (0, 1)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    for _ in range(2):
        assert program(values).tolist() == values.tolist()


def test_two_devices(pair, program):
    """Each array is put on the device of its row."""
    add = pair.compile(program("add"), CompileOptions(num_replicas=2))
    for turn in range(3):
        rows = [[NUMBERS + n + turn, NUMBERS] for n in range(2)]
        results = add.execute(rows, ExecuteOptions(launch_id=turn))
        assert [result.device for [result] in results] == list(pair.devices)
        assert [result.tolist() for [result] in results] == [
            (2 * NUMBERS + n + turn).tolist() for n in range(2)
        ]
    bound = add.bind_rows(rows)
    assert [result.tolist() for [result] in bound()] == [result.tolist() for [result] in results]
    with pytest.raises(ValueError, match=r"argument 0 of 2 must be f32\[8\], .* shape \(7,\)"):
        add.execute([rows[0], [NUMBERS[:7], NUMBERS]])
    one = pair.compile(program("add"), CompileOptions(device_ids=[[1]]))
    for _ in range(2):
        result = one(NUMBERS, NUMBERS)
        assert (result.device, result.tolist()) == (pair.devices[1], (2 * NUMBERS).tolist())
    portable = pair.compile(program("add"), CompileOptions(compile_portable_executable=True))
    for device in pair.devices:
        [result], _ = portable.execute_on([NUMBERS, NUMBERS], device)
        assert (result.device, result.tolist()) == (device, (2 * NUMBERS).tolist())


def test_the_same_array_where_it_is_donated_and_kept(pair, program):
    donate = pair.compile(program("donate"), CompileOptions(num_replicas=2))
    results = donate.execute([[NUMBERS, NUMBERS]] * 2)
    assert [result.tolist() for [result] in results] == [(2 * NUMBERS).tolist()] * 2
