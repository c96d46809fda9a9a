"""Signed registries elsewhere: whom to trust, what was read, how one is made."""
