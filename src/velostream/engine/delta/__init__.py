"""Tables that outgrow memory: kept in Delta Lake, written and read by Spark."""
