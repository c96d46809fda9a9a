"""Verified binaries, kept by their content."""
