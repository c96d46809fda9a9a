"""Verified binaries, addressed by their content."""
