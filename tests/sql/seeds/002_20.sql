-- Wait up to 60 seconds for topic to exist
CREATE TABLE user_events AS
SELECT * FROM kafka_events
WITH (
    "auto.offset.reset" = "latest",
    "topic.wait.timeout" = "60s",
    "topic.retry.interval" = "5s"
);
