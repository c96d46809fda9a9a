"""The tower that finds plugins: never loads a native library, never asks a device.

`contract` is what a plugin says of itself, `store` what was fetched, `discovery` the choice.
"""
