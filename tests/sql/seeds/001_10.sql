-- Explicit performance-optimized configuration
CREATE TABLE financial_data AS
SELECT * FROM kafka_topic('financial-transactions')
WITH (
    "topic.wait.timeout" = "5m",
    "topic.retry.strategy" = "exponential",
    "topic.retry.interval" = "1s",
    "topic.retry.multiplier" = "1.5",    -- Lookup table optimization
    "topic.retry.max.delay" = "120s",    -- Production optimized
    "auto.offset.reset" = "latest"
);
