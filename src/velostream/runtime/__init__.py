"""Running: the Spark session, jobs, the data directory, and the database that ties them together."""
