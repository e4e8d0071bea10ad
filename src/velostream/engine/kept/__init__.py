"""Rows that a job keeps as its state, and when they leave it."""
