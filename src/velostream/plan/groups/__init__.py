"""Groups: aggregates as accumulators, which are merged and retracted incrementally."""
