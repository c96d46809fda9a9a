"""Plugins that fail before anything can be asked of them, and the check that must report it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from faulty import FAULTS, THROWN

from pjrt_hub.kit import conformance
from pjrt_hub.kit.conformance import Verdict

PASS, FAIL, CRASH, TIMEOUT = Verdict.PASS, Verdict.FAIL, Verdict.CRASH, Verdict.TIMEOUT

pytestmark = pytest.mark.timeout(1200)  # a test may wait for others in the pool

#: Seconds after which a check that would never end is stopped; the tests wait that long.
DEADLINE = 2.0

#: A fault -> the check that is meant for it, its verdict, and a part of its text or notes.
VERDICTS = {
    "no_symbol": ("plugin.entry", FAIL, "a table of functions from GetPjrtApi, found none"),
    "null_table": ("plugin.entry", FAIL, "a table of functions from GetPjrtApi, found none"),
    "short_table": ("plugin.table_size", FAIL, "found 16"),
    "ragged_table": ("plugin.table_size", FAIL, "found 1140"),
    "cut_table": ("plugin.table_size", FAIL, "expected the 138 functions of version 0.117"),
    "null_slot": ("plugin.base_functions", FAIL, "found NULL: PJRT_Error_Message"),
    "extensions_in_a_circle": ("extensions.chain", FAIL, "it leads back, or is garbage"),
    "extensions_nowhere": ("extensions.chain", CRASH, "died of SIGSEGV"),
    "extensions_without_end": ("extensions.chain", FAIL, "it leads back, or is garbage"),
    "another_abi": ("plugin.version", FAIL, "found 1.117"),
    "old": ("plugin.version", FAIL, "found 0.55"),
    "new": ("plugin.version", PASS, "what came since is unknown"),
    "undefined_symbol": ("plugin.loads", FAIL, "undefined symbol: nobody_has_this_function"),
    "constructor_abort": ("plugin.loads", CRASH, "died of SIGABRT"),
    "constructor_throws": ("plugin.loads", CRASH, "died of SIGABRT"),
    "constructor_hang": ("plugin.loads", TIMEOUT, "within 2 s"),
    "entry_abort": ("plugin.entry", CRASH, "died of SIGABRT"),
    "throws": ("plugin.entry", CRASH, "died of SIGABRT"),
    "entry_hang": ("plugin.entry", TIMEOUT, "within 2 s"),
    "initialize_abort": ("plugin.initialize", CRASH, "died of SIGABRT"),
    "segfault": ("plugin.initialize", CRASH, "died of SIGSEGV"),
    "stack_overflow": ("plugin.initialize", CRASH, "died of SIGSEGV"),
    "exit_0": ("plugin.initialize", CRASH, "exited with status 0"),
    "exit_3": ("plugin.initialize", CRASH, "exited with status 3"),
    "quick_exit_1": ("plugin.initialize", CRASH, "exited with status 1"),
    "killed": ("plugin.initialize", CRASH, "died of SIGKILL"),
    "kills_its_group": ("plugin.initialize", CRASH, "died of SIGKILL"),
    "initialize_hang": ("plugin.initialize", TIMEOUT, "within 2 s"),
    "busy_hang": ("plugin.initialize", TIMEOUT, "within 2 s"),
    "stubborn_hang": ("plugin.initialize", TIMEOUT, "within 2 s"),
    "flood": ("plugin.initialize", TIMEOUT, "within 2 s"),
    "hangs_with_a_daemon": ("plugin.initialize", TIMEOUT, "within 2 s"),
    "megabyte_of_words": ("plugin.initialize", CRASH, "died of SIGABRT"),
    "takes_signals": ("plugin.initialize", CRASH, "died of SIGABRT"),
    "refuses": ("plugin.initialize", FAIL, "the device is busy"),
    "closes_everything": ("plugin.initialize", CRASH, "exited with status 1"),
    "closes_stdout": ("plugin.process", FAIL, "files 0, 1, 2 are closed"),
    "noisy_stdout": ("plugin.process", PASS, "writes to the standard output"),
    "leaves_a_daemon": ("plugin.process", FAIL, "1 process(es) were left running"),
    "raises_limits": ("plugin.process", FAIL, "RLIMIT_NOFILE is 16"),
}


@pytest.fixture(scope="module")
def found(faults):
    """`found(name)` gives the results of a fault's check; two threads run all checks in advance."""

    def look(path, check, verdict):
        seconds = DEADLINE if verdict is TIMEOUT else None
        return conformance.run(path, names=[check], jobs=1, seconds=seconds).results

    with ThreadPoolExecutor(2) as pool:
        results = {
            name: pool.submit(look, faults(name), *meant) for name, (*meant, _) in VERDICTS.items()
        }
        yield lambda name: results[name].result()


def test_every_fault_has_a_verdict():
    assert VERDICTS.keys() == FAULTS.keys() | THROWN.keys()


def test_what_a_process_inherits_is_found_beside_other_checks(faults):
    report = conformance.run(faults("raises_limits"), areas=["plugin"], jobs=1)
    assert "RLIMIT_NOFILE is 16" in report["plugin.process"].text


@pytest.mark.parametrize("name", VERDICTS)
def test_it_is_found(found, name):
    check, verdict, said = VERDICTS[name]
    (result,) = found(name)
    assert (result.name, result.verdict) == (check, verdict), result.text
    assert said in " ".join([result.text, *result.notes])
