"""Time in a query: event time, windows, watermarks, clock filters and stream joins."""
