"""Plugins, clients and topologies: the doors to everything on a platform."""
