"""Other software's arrays, files and plugins' hosts; each imports its framework late.

None imports another.
"""
