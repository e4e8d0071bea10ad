"""A connector of one's own beside a data source of Spark's, and a bucket beside Spark's reader of it."""
