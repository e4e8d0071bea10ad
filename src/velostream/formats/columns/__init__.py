"""Conversion of texts and records to typed columns, for all formats."""
