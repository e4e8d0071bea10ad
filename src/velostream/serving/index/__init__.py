"""Finding rows by key and by value."""
