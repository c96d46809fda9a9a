"""The checks (layer 5), a file for each area. Each file is found by being here."""
