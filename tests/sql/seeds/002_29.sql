-- Generic SQL with JDBC-style URL:
CREATE TABLE custom_data AS
SELECT * FROM sql://driver:connection_string?query="custom_query"
WITH (
    "driver" = "postgresql",
    "poll.interval" = "60s",
    "incremental.column" = "updated_at"
);
