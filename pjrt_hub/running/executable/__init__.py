"""What was compiled: loaded or not, called, saved and described."""
