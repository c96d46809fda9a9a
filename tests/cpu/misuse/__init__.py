"""Cases of misuse: a function of a `Case`, the exception it ends in, and a pattern of its text."""

from misuse import calls, making, memory

CASES = [*calls.CASES, *memory.CASES, *making.CASES, *memory.OF_HOSTS]
