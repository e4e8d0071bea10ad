-- Environment variable override (runtime configuration)
-- export VELOSTREAM_RETRY_MULTIPLIER=2.0  # Use bit-shifting optimization
CREATE TABLE high_throughput AS
SELECT * FROM kafka_topic('events')
WITH ("topic.wait.timeout" = "10m");
