"""What arrays are before they are on a device: element types, shapes, layouts, host memory."""
