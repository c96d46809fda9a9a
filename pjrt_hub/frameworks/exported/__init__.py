"""Functions that jax.export, torch_xla or torchax wrote to files, run without these.

`reading.read` takes a file, bytes or a folder, `Exported` calls what it gives on a client.
"""
