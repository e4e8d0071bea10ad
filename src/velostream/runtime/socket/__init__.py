"""The socket through which other processes use a data directory that is held by one process."""
