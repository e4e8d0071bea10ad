-- Read from latest offset (for real-time processing)
CREATE TABLE live_events AS
SELECT * FROM kafka_events
WITH ("auto.offset.reset" = "latest");
