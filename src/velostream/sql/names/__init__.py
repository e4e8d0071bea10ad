"""Names: which column each one means."""
