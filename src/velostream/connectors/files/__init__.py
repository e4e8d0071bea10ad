"""Files as a source of changes, wherever they are: watched, copied to a spool, read."""
