"""Columns of a table: immutable Arrow segments."""
