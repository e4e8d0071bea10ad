"""Kafka topics as a sink."""
