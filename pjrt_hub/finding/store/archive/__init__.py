"""Strict readers of archives: wheels, zips and tarballs."""
