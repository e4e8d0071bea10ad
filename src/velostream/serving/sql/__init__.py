"""SQL over tables without Spark."""
