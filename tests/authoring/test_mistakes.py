"""The planted mistakes fit the kit's code; those that only one check finds are found by it.

tests/soak has the conformance suite look for each mistake.
"""

from pathlib import Path

import native_plugin
import pytest
from mistakes import MISTAKES

from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Verdict

AUTHORING = Path(__file__).parents[2] / "pjrt_hub" / "kit" / "authoring"

SUCCESS = "expected an error, found success"
#: A mistake -> the check that is meant for it, and a part of what the check says.
FOUND = {
    "assignment_into_any_room": ("client.assignment_too_small", f"1 with room for 1: {SUCCESS}"),
    "attributes_of_nothing": ("plugin.attributes", "expected a name of each attribute"),
    "buffer_in_the_first_memory": ("buffers.default_memory", "the buffer's memory: expected"),
    "buffer_ready_early": ("transfers.copy_is_not_early", "found it ready"),
    "device_without_a_text": ("devices.texts", "ToString of device 0: expected text, found none"),
    "dimensions_overflow": ("buffers.dimensions_overflow", f"a host array of 2^64: {SUCCESS}"),
    "environment_changed": ("client.process", "OMP_NUM_THREADS is set after PJRT_Client_Create"),
    "error_text_up_to_a_nul": ("events.created_fails_in_words", "lost on the way, and more'"),
    "error_without_function_table": ("errors.tables", "expected a table of all functions, found"),
    "error_without_text": ("errors.messages", "expected the reason, found none"),
    "layout_ignored": ("transfers.with_host_layout", "the values by columns: expected"),
    "memory_ignored": ("buffers.memory", "the memory of a buffer in device: expected"),
    "memory_without_a_text": ("memories.texts", "ToString of a memory: expected text, found none"),
    "negative_dimensions": ("buffers.dimension_negative", f"[-4]: {SUCCESS}"),
    "peak_below_what_is_in_use": ("devices.memory_stats", "expected a peak of 16384 or more"),
    "reference_never_let_go": ("external.view_referenced", "expected 1, found 0"),
    "rows_not_counted": ("execute.too_many_rows", "expected a PJRT_Buffer, found NULL"),
    "statistics_claim_what_is_unknown": ("devices.memory_stats", "16384 bytes in use of 0"),
    "table_longer_than_it_is": ("plugin.functions", "expected NULL or the address of code"),
    "any_order_taken": ("transfers.with_host_layout", "the order (0, 0): expected an error"),
    "any_device_layout_taken": ("transfers.device_layout", "expected (0, 1), found (1, 0)"),
    "a_fingerprint_of_its_own_each": ("compile.fingerprint", "the fingerprint, compiled again"),
    "user_data_forgotten": ("memories.user_data", "the user data by the memory's key"),
    "user_data_never_destroyed": ("memories.user_data_ends", "what was handed back: expected"),
    "working_directory_changed": ("client.process", "the working folder is / after PJRT_Client"),
}
#: These mistakes kill the process of their check, which reports the signal.
DEADLY = {"too_much_is_allocated": ("buffers.uninitialized_without_end", "SIGSEGV")}


def test_each_changes_one_place():
    assert len({each.name for each in MISTAKES}) == len(MISTAKES) > 150
    for each in MISTAKES:
        mine = each.file == "mychip.c"
        path = AUTHORING / ("templates/example.c.in" if mine else f"c/pjrt_plugin/{each.file}")
        assert each.change(path.read_text("utf-8")) != path.read_text("utf-8")


@pytest.mark.parametrize("name", [*FOUND, *DEADLY])
def test_its_check_finds_it(tmp_path, name):
    check, text = {**FOUND, **DEADLY}[name]
    (mistake,) = (each for each in MISTAKES if each.name == name)
    source = native_plugin.write(tmp_path)
    mistake.make(source)
    library = native_plugin.build(source, "gcc", "-O0", *native_plugin.POSIX)
    # As in a run of the whole area, the basics run first in the process of this check.
    names = ["basics.*", check] if check.startswith("client.process") else [check]
    # The check finds nothing if the machine delays it until the work is over.
    for _ in range(3 if name == "buffer_ready_early" else 1):
        report = conformance.run(library, names=names, jobs=1)
        if report[check].verdict != Verdict.PASS:
            break
    wanted = Verdict.CRASH if name in DEADLY else Verdict.FAIL
    assert (report[check].verdict, text in report[check].text) == (wanted, True), report[check].text
