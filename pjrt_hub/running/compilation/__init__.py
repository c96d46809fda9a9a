"""From a program to a loaded executable: through the cache, in a process of its own."""
