"""Writing to ClickHouse."""
