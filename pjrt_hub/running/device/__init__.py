"""Devices, their memories, and events: what everything on a platform refers to."""
