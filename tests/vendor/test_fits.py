"""Whether programs fit the memory of machines that are not here, by their vendors' compilers."""

import json
from pathlib import Path

import pytest

import pjrt_hub

ARTIFACTS = Path(__file__).parents[1] / "exported" / "artifacts"
#: Side of square float32 matrices -> the GiB that the three matrices of a product take.
SIDES = {8192: 0.75, 32768: 12, 65536: 48, 131072: 192}
#: Machine -> the GiB of memory that one device has.
MACHINES = {"tpu:v5e:2x2": 15.75, "cuda13:A6000": 47.5, "cuda13:H200": 141.0}


def product(side):
    kind = f"tensor<{side}x{side}xf32>"
    return f"""func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}
      return %0 : {kind}
    }}"""


@pytest.mark.parametrize("side", SIDES)
def test_what_does_not_fit_is_flagged(side):
    found = pjrt_hub.fits(product(side), list(MACHINES), offline=True)
    assert [fit.target for fit in found] == ["cuda13:A6000", "tpu:v5e:2x2", "cuda13:H200"]
    for fit in found:
        assert fit.limit_nbytes / 2**30 == pytest.approx(MACHINES[fit.target], rel=0.01)
        assert fit.fits == (SIDES[side] < MACHINES[fit.target]), fit
        if fit.target.startswith("cuda13") or fit.fits:
            assert fit.peak_nbytes >= SIDES[side] * 2**30
            assert fit.headroom_nbytes == fit.limit_nbytes - fit.peak_nbytes
        else:
            assert "CompileTimeHbmOom" in fit.reason


@pytest.mark.parametrize(
    ("program", "target", "reason"),
    [(product(8), "tpu:v9:2x2", "v9"), ("func.func @main( {", "tpu:v5e:2x2", "error")],
    ids=["a machine that the compiler does not know", "a program that is none"],
)
def test_what_cannot_be_compiled_is_a_row_with_its_reason(program, target, reason):
    [fit] = pjrt_hub.fits(program, [target], offline=True)
    assert not fit.fits
    assert reason in fit.reason


def test_the_command_prints_a_table_and_tells_by_its_status(hub, tmp_path):
    path = tmp_path / "product.mlir"
    path.write_text(product(65536))
    done = hub("fits", path, "--offline", "--targets", "cuda13:A6000,cuda13:H200")
    head, small, large = done.stdout.splitlines()
    assert head.split() == ["TARGET", "DEVICES", "MEMORY", "NEEDS", "HEADROOM", "FITS"]
    assert small.endswith("no: it needs 48 GiB, a device has 47.54 GiB")
    assert large.endswith("yes")
    one = ("fits", path, "--offline", "--targets", "cuda13:A6000", "--json")
    [told] = json.loads(hub(*one, status=1).stdout)
    assert (told["fits"], told["num_devices"]) == (False, 1)
    assert told["headroom_nbytes"] == told["limit_nbytes"] - told["peak_nbytes"] < 0


def test_an_exported_function_of_another_platform_fits_nowhere(hub):
    artifact, both = ARTIFACTS / "cuda_only.jaxexport", "tpu:v5e:2x2,cuda13:H200"
    done = hub("fits", artifact, "--offline", "--targets", both)
    told = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert "it was exported for cuda, and not for tpu" in told["tpu:v5e:2x2"]
    assert told["cuda13:H200"].endswith("yes")
