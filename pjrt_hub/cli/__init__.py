"""The command line: one file for each command, on top of pjrt-hub's Python API."""
