"""From statements as written to bound ones."""
