"""Finding plugins and choosing one, from data only: no plugin code runs."""
