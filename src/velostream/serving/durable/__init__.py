"""The durable form of a table: snapshots and a log."""
