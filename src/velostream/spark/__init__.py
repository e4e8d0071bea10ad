"""Spark: session, Java, jars, errors. No other package touches py4j or sets Spark's configuration."""
