"""Pinned binaries: the rows, the downloads and the cache.

`disk` <- `artifact` <- `archive` <- `cache` <- `transfer`.
"""
