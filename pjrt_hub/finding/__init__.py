"""The tower that finds plugins: never loads a native library, never asks a device.

`contract` reads what a plugin says of itself, `store` keeps what was fetched, `discovery` chooses.
"""
