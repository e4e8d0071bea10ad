"""Rows that a job keeps as state, and when they are dropped from it."""
