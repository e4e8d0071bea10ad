"""A Kafka broker for development."""
