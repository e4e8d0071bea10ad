"""What a step reads: sources, tables, derived relations."""
