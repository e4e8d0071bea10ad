"""Runtime: the database, its data directory and catalogue, its jobs, and the execution of statements."""
