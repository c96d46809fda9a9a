"""The command line (layer 5): a file per command; it uses what any other program may use."""
