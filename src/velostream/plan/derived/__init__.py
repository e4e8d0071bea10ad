"""Queries over tables: a tree of relations, kept right by the keys that changes touch."""
