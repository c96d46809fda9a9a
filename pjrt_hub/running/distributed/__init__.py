"""Programs of several processes: how these find each other, and what travels between them."""
