"""Writing rows to databases by transactions."""
