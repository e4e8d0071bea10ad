-- Works with ANY datasource - Kafka, File, Database, etc.
SELECT 
    o.order_id,
    o.product,
    o.amount,
    u.name as user_name,
    u.email as user_email,
    u.subscription_tier,
    CASE 
        WHEN u.subscription_tier IN ('premium', 'enterprise') 
        THEN true 
        ELSE false 
    END as discount_eligible
FROM orders o                    -- Could be Kafka stream, file stream, etc.
JOIN user_profiles u             -- Could be Kafka table, CSV file, DB table, etc.
ON o.user_id = u.user_id;
