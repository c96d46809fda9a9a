"""How bytes come: indexes, HTTP, partial files, bundles."""
