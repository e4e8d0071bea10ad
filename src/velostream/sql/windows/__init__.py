"""Windows in SQL."""
