"""The serving table beside DuckDB alone, SQLite, polars and a plain dict."""
