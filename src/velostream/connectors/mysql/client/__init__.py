"""Connections to MySQL and MariaDB, their catalogue, types and errors."""
