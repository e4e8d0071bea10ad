"""Time windows in SQL: their clauses, functions and bounds."""
