"""Artifacts that may be fetched: the registry's rows, and a project's pins."""
