-- File with retry configuration
CREATE TABLE data AS
SELECT * FROM file:///data/input.csv
WITH (
    "file.wait.timeout" = "60s",
    "file.retry.interval" = "5s"
);
