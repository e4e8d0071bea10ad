"""The kinds of steps: rows, upserts, groups, recomputation."""
