"""Name resolution: which column each name refers to."""
