"""The checks, a file for each area. Every file in this package is found and imported."""
