"""OVER over a source: plans of window functions over rows that arrive."""
