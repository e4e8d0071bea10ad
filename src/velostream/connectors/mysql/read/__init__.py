"""Reading from MySQL and MariaDB."""
