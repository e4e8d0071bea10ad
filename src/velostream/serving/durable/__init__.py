"""Durability of a table: snapshots and a log."""
