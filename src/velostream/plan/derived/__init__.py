"""Derived relations: queries over tables, maintained incrementally by the keys that changes touch."""
