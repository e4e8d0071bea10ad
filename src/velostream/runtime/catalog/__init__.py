"""The catalogue: what a data directory holds."""
