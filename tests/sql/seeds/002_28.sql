-- ClickHouse for analytics:
CREATE TABLE analytics_events AS
SELECT * FROM clickhouse://analytics:8123/events?table=user_events
WITH ("batch.size" = "10000");
