-- Database-based materialized table
CREATE TABLE user_analytics AS
SELECT user_id, COUNT(*) as order_count  
FROM postgres://db/orders_table
GROUP BY user_id;
