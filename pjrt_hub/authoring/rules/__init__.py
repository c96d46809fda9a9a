"""The rules of `lint` (layer 5): a file per area, whose numbers begin with the same digit."""
