"""Tables in memory: segments, versions, and one writer."""
