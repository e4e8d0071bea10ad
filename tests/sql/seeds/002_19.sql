-- Create table with explicit earliest (same as default)
CREATE TABLE historical_data AS
SELECT * FROM kafka_events
WITH ("auto.offset.reset" = "earliest");
