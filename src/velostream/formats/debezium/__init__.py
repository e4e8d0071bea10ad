"""Debezium's envelopes."""
