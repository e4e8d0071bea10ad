"""Opens a statement: its sources are opened, its plan is typed by Spark, its result gets a schema."""
