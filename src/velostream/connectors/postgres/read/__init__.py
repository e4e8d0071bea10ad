"""Reading PostgreSQL: loads, changes, polls."""
