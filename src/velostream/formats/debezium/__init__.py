"""Debezium change events (envelopes)."""
