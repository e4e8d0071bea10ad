"""Talking to brokers."""
