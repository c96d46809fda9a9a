"""Plugins that fail at first contact: the name of each fault, and the macros that make it."""

from __future__ import annotations

#: These macros are those of plugin.c; the functions that they call are in faults.h.
FAULTS = {
    "another_abi": ["MAJOR=1"],
    "busy_hang": ["ON_INITIALIZE=for (volatile int i = 0;; i++) continue"],
    "closes_everything": ["ON_INITIALIZE=for (int each = 3; each < 1024; each++) close(each)"],
    "closes_stdout": ["ON_INITIALIZE=close(0), close(1), close(2)"],
    "constructor_abort": ["ON_LOAD=abort()"],
    "constructor_hang": ["ON_LOAD=for (;;) pause()"],
    "cut_table": ["TABLE_SIZE=(40 + 8 * 40)"],  # its version promises more
    "entry_abort": ["TABLE=(abort(), &api)"],
    "entry_hang": ["TABLE=(pause(), &api)"],
    "exit_0": ["ON_INITIALIZE=exit(0)"],
    "exit_3": ["ON_INITIALIZE=exit(3)"],
    "extensions_in_a_circle": ["EXTENSIONS=&cycle"],
    "extensions_nowhere": ["EXTENSIONS=(void *)8"],
    "extensions_without_end": ["ON_LOAD=fill_chain()", "EXTENSIONS=chain"],
    "flood": [
        'ON_INITIALIZE=for (;;) dprintf(2, "and another line of words that nobody reads\\n")'
    ],
    "hangs_with_a_daemon": ["ON_INITIALIZE=leave_daemon(true); for (;;) pause()"],
    "initialize_abort": ["ON_INITIALIZE=abort()"],
    "initialize_hang": ["ON_INITIALIZE=for (;;) pause()"],
    "killed": ["ON_INITIALIZE=raise(SIGKILL)"],  # a system that runs out of memory does so
    "kills_its_group": ["ON_INITIALIZE=kill(0, SIGKILL)"],
    "leaves_a_daemon": ["ON_INITIALIZE=leave_daemon(false)"],
    "megabyte_of_words": [
        'ON_INITIALIZE=for (int i = 0; i < 1 << 17; i++) dprintf(2, "%07d\\n", i);'
        ' dprintf(2, "the last word\\n"); abort()'
    ],
    "new": ["MINOR=999"],
    "no_symbol": ["NO_ENTRY"],
    "noisy_stdout": [
        r'ON_INITIALIZE=dprintf(1, "{\"error\": \"InternalError\"}\n{\"status\": 9} no end")'
    ],
    "null_slot": ["ON_LOAD=api.PJRT_Error_Message = NULL"],  # without it no error can be read
    "null_table": ["TABLE=NULL"],
    "old": ["MINOR=55"],  # the order of functions was not fixed yet
    "quick_exit_1": ["ON_INITIALIZE=_exit(1)"],  # an error of ours has this status, too
    "ragged_table": ["TABLE_SIZE=1140"],  # it ends in the middle of a function's address
    "raises_limits": ["ON_INITIALIZE=raise_limits()"],
    "refuses": ['ON_INITIALIZE=return fail(14, "the device is busy")'],
    "segfault": ["ON_INITIALIZE=*(volatile int *)8 = 1"],
    "short_table": ["TABLE_SIZE=16"],  # it ends before the version, which every table has
    "stack_overflow": ["ON_INITIALIZE=deeper(NULL)"],
    "stubborn_hang": ["ON_INITIALIZE=handle_all(SIG_IGN); for (;;) pause()"],
    "takes_signals": ["ON_INITIALIZE=handle_all(swallow); kill(getpid(), SIGTERM); abort()"],
    "undefined_symbol": [
        "ON_INITIALIZE=void nobody_has_this_function(void); nobody_has_this_function()"
    ],
}
#: The faults that throws.cc makes.
THROWN = {"throws": [], "constructor_throws": ["WHILE_LOADED"]}
