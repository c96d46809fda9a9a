"""The disk below the cache: safe writes, ownership, and locks between processes."""
