"""The socket through which other processes ask the one that holds the data directory."""
