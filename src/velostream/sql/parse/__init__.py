"""Our dialect of SQL, and its parser."""
