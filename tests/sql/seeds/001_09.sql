-- High-performance exponential backoff (default behavior - optimized)
CREATE TABLE orders AS
SELECT * FROM kafka_topic('orders')
WITH (
    "topic.wait.timeout" = "5m",
    -- Defaults to exponential strategy with 1.5x multiplier for optimal performance
    "auto.offset.reset" = "latest"
);
