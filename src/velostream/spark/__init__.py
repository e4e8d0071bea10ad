"""Spark: session, Java, jars, errors. Nothing else touches py4j or sets Spark's configuration."""
