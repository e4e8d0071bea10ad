"""Changing what is there: replacing, altering, and telling beforehand what would change."""
