"""What becomes of a compiler's words about a machine; tests/vendor has real ones."""

import pytest

import pjrt_hub
from pjrt_hub.door.fits import Fit, _fit
from pjrt_hub.errors import FileFormatError, TargetNotFoundError

GIB = 1 << 30
TOO_MUCH = "it needs 17 GiB, a device has 16 GiB"
DEVICE = {"device": "a device", "num_devices": 4, "limit_nbytes": 16 * GIB}


@pytest.mark.parametrize(
    ("said", "fits", "reason", "headroom"),
    [
        ({"peak_nbytes": 6 * GIB, "status": 0}, True, "", 10 * GIB),
        ({"peak_nbytes": 16 * GIB, "status": 0}, True, "", 0),
        ({"peak_nbytes": 17 * GIB, "status": 0}, False, TOO_MUCH, -GIB),
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


@pytest.mark.parametrize(
    ("targets", "error", "told"),
    [
        (["cpu"], TargetNotFoundError, "'cpu' lists no machines"),
        ("cpu,tpu", TargetNotFoundError, "'cpu' lists no machines"),
        (",", ValueError, "no machine is named"),
    ],
)
def test_a_platform_without_machines_is_an_error(targets, error, told):
    with pytest.raises(error, match=told):
        pjrt_hub.fits("func.func @main() { return }", targets, offline=True)


def test_what_is_no_program_is_refused_before_anything_is_fetched():
    with pytest.raises(FileFormatError):
        pjrt_hub.fits(b"nothing", ["tpu"], offline=True)
