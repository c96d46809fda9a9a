"""The command line: a file per command; it uses what any other program may use."""
