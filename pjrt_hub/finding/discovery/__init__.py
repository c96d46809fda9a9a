"""Which plugins are here, and which one to use: data only, no plugin code runs."""
