"""Record formats: from bytes to columns and back."""
