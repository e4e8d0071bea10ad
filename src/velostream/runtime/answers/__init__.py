"""What statements answer: rows, plans, lists."""
