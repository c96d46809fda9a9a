"""Transfers: indexes, HTTP, partial files, bundles."""
