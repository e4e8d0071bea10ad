"""What all databases share: properties, the durable log of changes, polling, and writing by key."""
