-- Readings of sensors, in windows of event time: when it was measured, not when it arrived.

CREATE SOURCE readings (sensor STRING, at TIMESTAMP, value DECIMAL(6,2))
FROM file://readings.csv
WITH ("event.time.column" = "at", "max_out_of_orderness_ms" = "5000");

-- A minute is shown once, when no reading of it can arrive any more.
CREATE TABLE per_minute AS
SELECT sensor, window_start, COUNT(*) AS readings, MAX(value) AS highest
FROM readings
WINDOW TUMBLING(INTERVAL '1' MINUTE)
GROUP BY sensor;

-- The same minute as it grows.
CREATE TABLE growing AS
SELECT sensor, window_start, COUNT(*) AS readings, MAX(value) AS highest
FROM readings
WINDOW TUMBLING(INTERVAL '1' MINUTE)
GROUP BY sensor
EMIT CHANGES;

-- The difference to the reading before, for each reading.
CREATE TABLE steps AS
SELECT sensor, at, value, value - LAG(value) OVER (PARTITION BY sensor ORDER BY at) AS step
FROM readings;
