"""The extensions of the C API: a file for each that has a Python form.

Each file calls the functions of one node of a plugin's chain. They may use the rest of the runtime,
which imports them only where an object offers them (`Topology.tpu`, `Plugin.ffi`).
"""
