-- MySQL binlog:
SELECT * FROM mysql://host/db?table=users
WITH (
    "cdc" = "true",
    "binlog.file" = "mysql-bin.000001",
    "binlog.position" = "12345"
);
