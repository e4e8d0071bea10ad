"""A table: versions, readers, the writer."""
