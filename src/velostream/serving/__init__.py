"""Tables: stored, versioned, durable, and queried without Spark."""
