"""Reading from ClickHouse."""
