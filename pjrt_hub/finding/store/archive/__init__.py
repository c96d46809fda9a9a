"""Archives, read strictly: wheels, zips and tarballs."""
