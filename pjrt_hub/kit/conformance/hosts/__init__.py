"""What hosts of PJRT plugins do without each function: a file per host, made by `tools/hosts`."""
