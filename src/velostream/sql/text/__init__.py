"""Text of statements: split, rewritten, located."""
