"""Topics as a source."""
