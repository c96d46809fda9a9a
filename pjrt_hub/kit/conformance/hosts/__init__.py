"""What hosts of PJRT plugins do without each function: a file each, made by `tools/hosts`."""
