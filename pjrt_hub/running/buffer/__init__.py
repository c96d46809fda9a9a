"""Arrays on a device: made, filled, read, lent and borrowed."""
