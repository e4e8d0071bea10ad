"""Rows in Arrow: groups and multisets."""
