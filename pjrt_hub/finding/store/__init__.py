"""Pinned binaries: the rows, the downloads and the cache.

Each part imports only parts to its left: `disk` <- `catalog` <- `archive` <- `cache` <- `transfer`.
"""
