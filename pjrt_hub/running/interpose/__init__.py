"""Between any host and any plugin: trampolines in C, and tables handed on."""
