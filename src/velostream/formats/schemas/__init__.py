"""Schemas of binary records, from files and schema registries."""
