"""The tower that runs programs: never touches package metadata, the network or the cache.

Only `capi` reads a C field; everywhere else a native pointer is an opaque number.
"""
