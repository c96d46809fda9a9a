"""Bridges to other software: to its arrays and files, and to other hosts of plugins.

Each imports its framework late, and none imports another.
"""
