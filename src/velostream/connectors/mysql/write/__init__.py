"""Writing to MySQL and MariaDB."""
