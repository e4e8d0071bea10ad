"""The SQL dialect and its parser."""
