"""Archives: the pinned members of wheels, zips and tarballs, and the rules for all of them."""
