"""The disk below the cache: what is safely there, whose it is, and locks between processes."""
