"""Where the towers meet, and nowhere else: from a platform's name to a client."""
