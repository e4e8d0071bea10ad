-- User positions from Kafka (real-time trading data)
CREATE TABLE user_positions AS
SELECT 
    user_id,
    symbol,
    SUM(quantity) as position_size,
    SUM(quantity * price) as position_value
FROM kafka://trades-topic
GROUP BY user_id, symbol;
