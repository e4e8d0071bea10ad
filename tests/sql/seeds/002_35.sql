-- PostgreSQL logical replication:
SELECT * FROM postgresql://host/db?table=orders
WITH (
    "cdc" = "true",
    "slot.name" = "velostream_slot"
);
