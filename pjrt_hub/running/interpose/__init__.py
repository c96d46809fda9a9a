"""Code between any host and any plugin: trampolines in C, and tables that are handed on."""
