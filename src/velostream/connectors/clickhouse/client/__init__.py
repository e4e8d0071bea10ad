"""The HTTP interface of ClickHouse, its catalogue, its types and its errors."""
