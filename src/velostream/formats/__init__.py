"""Bytes to columns and back."""
