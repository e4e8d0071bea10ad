"""Jobs: the running continuous statements, with their threads, micro-batches and statistics."""
