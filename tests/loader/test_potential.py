"""loader/examples/potential.cpp: molecular dynamics with a potential that JAX exported."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from programs import LOADER, compiler

from pjrt_hub.cli.__main__ import run as command_line

pytestmark = [
    pytest.mark.slow,  # JAX exports the potential, and is not where the quick tests run.
    pytest.mark.skipif(sys.platform != "linux", reason="the loader opens plugins on Linux"),
]
SIDE, CUTOFF, SKIN, TIME_STEP, STEPS = 4.8, 1.8, 0.15, 0.005, 40
COUNT = 64
#: More than there are atoms and pairs, so that the ends of the arrays are padding.
ROOM = {"atoms": 70, "pairs": 900}


def lennard_jones(positions, species, pairs, box):
    """Give the energy of atoms of two species in a periodic box, the forces, and the virial."""
    import jax
    import jax.numpy as jnp

    def energy(positions, strain):
        first, second = pairs.T
        apart = positions[second] - positions[first]
        apart = apart - jnp.round(apart / jnp.diag(box)) @ box
        square = jnp.sum((apart + apart @ strain) ** 2, axis=1)
        is_near = (first != second) & (square < CUTOFF**2)
        diameter = jnp.where(species == 0, 1.0, 0.9).astype(positions.dtype)
        power = ((diameter[first] + diameter[second]) ** 2 / 4 / jnp.where(is_near, square, 1)) ** 3
        return jnp.sum(jnp.where(is_near, 4 * (power * power - power), 0))

    no_strain = jnp.zeros((3, 3), positions.dtype)
    value, slopes = jax.value_and_grad(energy, argnums=(0, 1))(positions, no_strain)
    return {"energy": value, "forces": -slopes[0], "virial": -slopes[1]}


def export(folder, dtype, room):
    """Write the potential to a file as its user does, and return the file's path."""
    import jax

    of, kind = jax.ShapeDtypeStruct, np.dtype("i4")
    exported = jax.export.export(jax.jit(lennard_jones))(
        positions=of((room["atoms"], 3), dtype),
        species=of((room["atoms"],), kind),
        pairs=of((room["pairs"], 2), kind),
        box=of((3, 3), dtype),
    )
    (folder / "lj.jaxexport").write_bytes(exported.serialize())
    out = folder / "lj.pjrt"
    assert command_line(["export", str(folder / "lj.jaxexport"), "-o", str(out)]) == 0
    return out


@pytest.fixture
def atoms(tmp_path):
    """A warm crystal of two species, and the text in which the program reads it."""
    random = np.random.default_rng(3)
    lattice = np.stack(np.meshgrid(*[np.arange(4)] * 3), axis=-1).reshape(-1, 3) * SIDE / 4
    positions = lattice + random.uniform(-0.05, 0.05, (COUNT, 3))
    velocities = random.normal(0, 1, (COUNT, 3))
    species = np.arange(COUNT) % 2
    lines = [f"{SIDE} {SIDE} {SIDE} {TIME_STEP} {CUTOFF} {SKIN}"]
    for kind, place, velocity in zip(species, positions, velocities, strict=True):
        lines.append(" ".join(map(repr, [int(kind), *place.tolist(), *velocity.tolist()])))
    path = tmp_path / "atoms"
    path.write_text("\n".join(lines))
    return SimpleNamespace(path=path, positions=positions, velocities=velocities, species=species)


@pytest.fixture(scope="module")
def program(objects, tmp_path_factory):
    out = tmp_path_factory.mktemp("potential") / "potential"
    line = [*compiler("CXX"), "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{LOADER}"]
    source = LOADER / "examples" / "potential.cpp"
    line += [str(source), *map(str, objects), "-o", str(out), "-pthread", "-ldl"]
    subprocess.run(line, check=True)
    return out


@pytest.fixture
def simulate(program, library, atoms, tmp_path):
    """`simulate(potential)` runs the program on a plugin by its name, and returns what it did."""
    text = f'schema = 1\nname = "mine"\nplatform = "cpu"\n[[library]]\npath = "{library}"\n'
    (tmp_path / "plugins").mkdir(mode=0o755)
    (tmp_path / "plugins" / "mine.toml").write_text(text)
    variables = {"PJRT_PLUGIN_MANIFESTS": f"{tmp_path}/plugins", "TF_CPP_MIN_LOG_LEVEL": "3"}

    def simulate(potential):
        return subprocess.run(
            [program, "mine", potential, atoms.path, str(STEPS)],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return simulate


def near(found, expected, tolerance):
    """Compare arrays by the largest element of what is expected."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_each_step_is_that_of_jax(simulate, atoms, tmp_path, dtype, tolerance):
    import jax

    with jax.enable_x64(dtype == "float64"):
        done = simulate(export(tmp_path, dtype, ROOM))
        assert done.returncode == 0, done.stderr
        steps = np.array(done.stdout.split(), float).reshape(STEPS, 11 + 6 * COUNT)
        moved, forces = steps[:, 11:].reshape(STEPS, COUNT, 3, 2).transpose(3, 0, 1, 2)
        function = partial(
            jax.jit(lennard_jones),  # It gets all pairs, near or not.
            species=atoms.species.astype(np.int32),
            pairs=np.array([*combinations(range(COUNT), 2)], np.int32),
            box=np.eye(3, dtype=dtype) * np.array(SIDE, dtype),
        )
        for step in range(STEPS):
            expected = function(positions=moved[step].astype(dtype))
            near(steps[step, 0], expected["energy"], tolerance)
            near(steps[step, 1:10].reshape(3, 3), expected["virial"], tolerance)
            near(forces[step], expected["forces"], tolerance)
    lists = steps[:, 10]
    assert (lists[0], lists[-1]) == (1, lists.max())
    assert 2 < lists[-1] < STEPS / 2  # Pairs stay on the device for some steps, and no longer.
    np.testing.assert_array_equal(moved[0], atoms.positions)
    start = atoms.positions + TIME_STEP * (atoms.velocities + TIME_STEP / 2 * forces[0])
    np.testing.assert_allclose(moved[1], start, rtol=0, atol=1e-12)
    bend = moved[2:] - 2 * moved[1:-1] + moved[:-2]
    np.testing.assert_allclose(bend, TIME_STEP**2 * forces[1:-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("room", "message"),
    [
        ({"atoms": COUNT - 1}, "has room for 63 of the 64 numbers in species"),
        ({"pairs": 300}, "has room for 600 of the "),
    ],
)
def test_a_potential_without_room(simulate, tmp_path, room, message):
    done = simulate(export(tmp_path, "float32", ROOM | room))
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert "hint: export it with more room" in done.stderr
