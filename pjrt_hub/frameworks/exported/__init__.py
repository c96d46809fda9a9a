"""Functions that jax.export, torch_xla or torchax wrote to files, run without these.

`reading.read` reads a file, bytes or a folder; `Exported` calls the function on a client.
"""
