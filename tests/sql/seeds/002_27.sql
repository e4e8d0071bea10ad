-- MySQL with binlog CDC:
CREATE TABLE orders AS
SELECT * FROM mysql://db.example.com/shop?table=orders
WITH (
    "cdc" = "true",
    "binlog.position" = "auto"
);
