"""The PJRT C API (layer 1): declarations, calls and the one place that loads a plugin.

May import `errors` and `abi` only; nothing outside this package touches `ffi`.
"""
