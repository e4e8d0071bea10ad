"""Event time: windows, OVER, joins of streams, rows that age out."""

from spark_databases import clock, clocked, database, follow_keys, name, opened

__all__ = ["clock", "clocked", "database", "follow_keys", "name", "opened"]
