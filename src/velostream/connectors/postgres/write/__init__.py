"""Writing to PostgreSQL."""
