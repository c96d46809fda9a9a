"""The checks, a file for each area. Each file is found by being here."""
