"""Jars: pinned, fetched, and added to Spark."""
