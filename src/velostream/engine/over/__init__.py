"""OVER over a source."""
