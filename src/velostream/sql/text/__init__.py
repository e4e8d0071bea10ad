"""Texts of statements: split, rewritten, located."""
