-- Wait for file to appear
CREATE TABLE import_data AS
SELECT * FROM file:///data/pending/import.json
WITH (
    "file.wait.timeout" = "300s",  -- Wait up to 5 minutes
    "file.retry.interval" = "10s"
);
