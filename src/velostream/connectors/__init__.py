"""Connectors: the contract of sources and sinks, the registry, and one folder per kind."""
