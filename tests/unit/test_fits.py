"""What becomes of a compiler's words about a machine; tests/vendor has real ones."""

from __future__ import annotations

import pytest

import pjrt_hub
from pjrt_hub.door.fits import Fit, _fit
from pjrt_hub.errors import FileFormatError, TargetNotFoundError

GIB = 1 << 30
DEVICE = {"device": "a device", "num_devices": 4, "limit_nbytes": 16 * GIB}


@pytest.mark.parametrize(
    ("said", "fits", "reason", "headroom"),
    [
        ({"peak_nbytes": 6 * GIB, "status": 0}, True, "", 10 * GIB),
        ({"peak_nbytes": 16 * GIB, "status": 0}, True, "", 0),
        (
            {"peak_nbytes": 17 * GIB, "status": 0},
            False,
            "it needs 17 GiB, a device has 16 GiB",
            -GIB,
        ),
        ({"reason": "out of memory", "status": 0}, False, "out of memory", None),
        ({"peak_nbytes": None, "status": 0}, True, "", None),
        ({"status": -6}, False, "the compiler died of SIGABRT", None),
        ({"status": 3}, False, "the compiler exited with 3", None),
        ({}, False, "it was not compiled within 7 s", None),
    ],
)
def test_a_machine_is_judged(said, fits, reason, headroom):
    fit = _fit("x:y", DEVICE | said, 7)
    assert (fit.target, fit.device, fit.num_devices) == ("x:y", "a device", 4)
    assert (fit.fits, fit.reason, fit.headroom_nbytes) == (fits, reason, headroom)


def test_a_row():
    fit = Fit("cuda:H100", "NVIDIA H100", 1, 3584, 8 * GIB)
    assert fit._row() == {
        "target": "cuda:H100",
        "devices": "1 x NVIDIA H100",
        "memory": "8 GiB",
        "needs": "3.5 KiB",
        "headroom": "8 GiB",
        "fits": "yes",
    }
    untold = Fit("cuda:H100", "NVIDIA H100", 1)._row()["fits"]
    assert untold == "it compiles; how much memory it needs is not told"


def test_a_platform_without_machines_is_an_error():
    program = "func.func @main() -> tensor<f32> { %0 = stablehlo.constant dense<1.0> : tensor<f32>"
    program += " return %0 : tensor<f32> }"
    with pytest.raises(TargetNotFoundError, match="'cpu' lists no machines"):
        pjrt_hub.fits(program, ["cpu"], offline=True)
    with pytest.raises(TargetNotFoundError, match="'cpu' lists no machines"):
        pjrt_hub.fits(program, "cpu,tpu", offline=True)
    with pytest.raises(ValueError, match="no machine is named"):
        pjrt_hub.fits(program, ",", offline=True)


def test_what_is_no_program_is_refused_before_anything_is_fetched():
    with pytest.raises(FileFormatError):
        pjrt_hub.fits(b"nothing", ["tpu"], offline=True)
