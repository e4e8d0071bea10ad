"""Spark SQL translated to DuckDB's, where the two agree."""
