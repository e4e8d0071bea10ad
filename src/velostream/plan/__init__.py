"""Query planning, without Spark: how the result of a bound query is maintained incrementally."""
