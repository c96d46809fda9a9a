"""Clients, devices, buffers, programs and executables (layer 2): what a user of a plugin touches.

May import errors, abi and `_capi`; native pointers are opaque here. Nothing of it knows where a
plugin came from.
"""
