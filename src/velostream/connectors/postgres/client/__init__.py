"""Connections to PostgreSQL, its catalogue, its types and its errors."""
