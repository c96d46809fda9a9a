"""Which plugins are here, and which one to use (layer 3): data only, no plugin code runs."""
