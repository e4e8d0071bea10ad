"""Time in a query: windows, event time, filters on the clock, stream joins."""
