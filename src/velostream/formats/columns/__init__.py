"""Texts and records to typed columns, whatever the format."""
