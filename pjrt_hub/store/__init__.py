"""Pinned binaries: what may be fetched, from where, and how it is kept (layer 2).

`catalog` -> `index` -> `fetch` -> `archive` -> `cache`; never loads a native library.
"""
