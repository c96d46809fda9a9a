"""A plugin's manifest and its binary, read as data."""
