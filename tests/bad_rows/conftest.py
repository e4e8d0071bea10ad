"""Rows that cannot be used, and their replay."""

from spark_databases import clock, clocked, database, follow_keys, name, opened

__all__ = ["clock", "clocked", "database", "follow_keys", "name", "opened"]
