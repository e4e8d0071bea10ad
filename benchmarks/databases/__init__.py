"""`make bench-databases`: from and into real database servers, beside Spark's JDBC and Debezium."""
