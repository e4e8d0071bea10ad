"""Statements in Spark's real-time mode."""
