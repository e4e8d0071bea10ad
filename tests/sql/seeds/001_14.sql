-- Read from earliest offset (for historical processing - default)
CREATE TABLE historical_data AS
SELECT * FROM kafka_events
WITH ("auto.offset.reset" = "earliest");
