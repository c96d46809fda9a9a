"""From a program to a loaded executable: by the cache, and perhaps in a separate process."""
