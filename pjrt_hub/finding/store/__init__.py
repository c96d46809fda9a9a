"""Pinned binaries: the rows, the downloads and the cache.

`disk` <- `catalog` <- `archive` <- `cache` <- `transfer`.
"""
