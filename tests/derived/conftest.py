"""Tables over tables."""

from databases import clock, clocked, database, follow_keys, name, opened

__all__ = ["clock", "clocked", "database", "follow_keys", "name", "opened"]
