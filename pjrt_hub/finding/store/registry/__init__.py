"""Signed registries: trust, reading and publishing."""
