"""Pipelines from Kafka: ours beside hand-written PySpark, over the same topic of a real broker."""
