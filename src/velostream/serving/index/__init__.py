"""Indexes of a table: rows by key, and rows by the values of any columns."""
