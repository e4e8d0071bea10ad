"""Requests over HTTP, bounded in time, size and reach."""
