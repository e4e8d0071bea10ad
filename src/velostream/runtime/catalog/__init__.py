"""The catalogue: every table, stream, source, view and job of a data directory."""
