-- Case-insensitive offset configuration
CREATE TABLE mixed_case AS
SELECT * FROM kafka_stream
WITH ("auto.offset.reset" = "LATEST");
