"""Rows that cannot be used: found, kept as dead letters, replayed."""
