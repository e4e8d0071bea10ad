-- File-based materialized table
CREATE TABLE user_analytics AS 
SELECT 
    user_id,
    COUNT(*) as order_count,
    SUM(amount) as total_spent,
    AVG(amount) as avg_order_value
FROM file:///data/orders.csv
GROUP BY user_id;
