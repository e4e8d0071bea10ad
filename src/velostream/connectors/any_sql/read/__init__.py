"""Reading through a driver."""
