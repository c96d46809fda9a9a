"""The rules of `lint`: a file for each area, whose rules' numbers begin with the same digit."""
