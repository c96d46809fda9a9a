"""Processes that meet a plugin before this one does."""
