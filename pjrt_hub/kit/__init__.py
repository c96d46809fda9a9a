"""For those who make plugins: write and package them, check them, see their calls.

Nothing here is imported by `pjrt_hub.client`.
"""
