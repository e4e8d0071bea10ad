"""Groups: accumulators that merge and retract."""
