"""Drivers of databases, by name: built in, registered, or of installed packages."""
