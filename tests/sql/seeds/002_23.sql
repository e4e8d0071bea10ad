-- Wait for pattern match
CREATE TABLE log_data AS
SELECT * FROM file:///logs/app-*.json
WITH (
    "file.wait.timeout" = "60s",
    "watch" = "true"  -- Continue watching after initial load
);
