"""Reads what the layers of `_capi.layers` recorded (layer 5): a call log, a summary, a timeline."""
