"""Benchmarks: ours beside the same work written by hand, in one run, as ratios."""
