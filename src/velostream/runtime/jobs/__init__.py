"""Jobs: threads, micro-batches, figures."""
