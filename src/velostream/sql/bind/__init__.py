"""The binder: from parsed statements to bound ones."""
