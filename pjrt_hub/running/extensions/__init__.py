"""The extensions of the C API: a file for each that has a Python form.

Each asks the functions of one node of a plugin's chain. They may use the rest of the runtime, which
opens them where an object offers them (`Topology.tpu`, `Plugin.ffi`).
"""
