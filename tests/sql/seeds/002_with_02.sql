-- Real-time change capture:
WITH (
    "cdc" = "true",
    "cdc.format" = "debezium"  -- or "native"
);
