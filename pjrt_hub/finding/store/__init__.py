"""Pinned binaries: what may be fetched, from where, and how it is kept.

`disk` <- `artifact` <- `archive` <- `cache` <- `transfer` <- `registry`.
"""
