"""From a bound query to the Spark work that keeps its result right."""
