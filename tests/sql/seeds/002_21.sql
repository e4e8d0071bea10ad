-- Create topic if it doesn't exist (requires permissions)
CREATE TABLE auto_topic AS
SELECT * FROM kafka_new_topic
WITH (
    "topic.create.if.missing" = "true",
    "topic.partitions" = "3",
    "topic.replication" = "2"
);
