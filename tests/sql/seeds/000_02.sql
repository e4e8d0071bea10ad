-- Kafka-based materialized table  
CREATE TABLE user_analytics AS
SELECT user_id, COUNT(*) as order_count
FROM kafka://orders-topic
GROUP BY user_id;
