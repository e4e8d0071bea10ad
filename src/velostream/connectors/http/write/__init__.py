"""Writing to servers that take rows over HTTP."""
