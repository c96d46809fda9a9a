"""What other software calls a tensor, turned into arrays and device buffers (layer 3).

A file per framework or format; each imports its own framework inside the function that needs
it, and none imports another bridge.
"""
