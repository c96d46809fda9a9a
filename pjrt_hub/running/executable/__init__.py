"""Compiled programs: loaded or not, called, saved and described."""
