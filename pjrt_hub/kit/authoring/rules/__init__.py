"""The rules of `lint`: a file per area, whose numbers begin with the same digit."""
