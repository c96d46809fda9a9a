"""What a plugin says about itself and what its binary is, read as data."""
