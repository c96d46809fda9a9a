"""The result if the C API and the program describe the outputs differently."""

import pytest

from pjrt_hub.errors import PluginError
from pjrt_hub.running.executable.signature_sources import Outputs, _merge_output
from pjrt_hub.running.program.signature import UNTOLD_LAYOUT, UNTOLD_TYPE, Signature, Slot

F32, S32 = 11, 4
MATRIX = Slot.make(F32, (2, 3), UNTOLD_LAYOUT)


@pytest.mark.parametrize(
    ("dtype", "shape", "known"),
    [
        (F32, (2, 3), (F32, (2, 3))),
        (None, None, (F32, (2, 3))),
        (F32, (-1, 3), (F32, (2, 3))),
        (F32, (), (F32, None)),  # this plugin fills in nothing
        (F32, (1, 3), (F32, None)),
        (S32, (2, 3), (UNTOLD_TYPE, (2, 3))),
    ],
)
def test_what_is_told_differently_is_asked_of_each_buffer(dtype, shape, known):
    found = _merge_output(MATRIX, dtype, shape)
    assert (found.code, found.shape) == known


@pytest.mark.parametrize(
    ("number", "error", "words"),
    [
        (1, PluginError, "PJRT_Executable_NumOutputs: .* gave 1 for 2 outputs"),
        (3, TypeError, "the program gives 3 values, of which 2 are arrays: tokens"),
    ],
)
def test_another_number_of_outputs_is_refused(number, error, words):
    with pytest.raises(error, match=words):
        Outputs(number, None, None).require(Signature((), (MATRIX, MATRIX)))
