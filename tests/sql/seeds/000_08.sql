-- Real-time P&L calculation with mixed datasource joins
SELECT 
    t.trade_id,
    t.user_id,
    t.symbol,
    t.quantity,
    t.price,
    p.position_size,                    -- From Kafka table
    s.sector,                           -- From CSV file table  
    s.risk_rating,                      -- From CSV file table
    u.risk_tolerance,                   -- From database table
    (t.price * t.quantity) as trade_value,
    p.position_value as current_position_value
FROM kafka://live-trades-stream t       -- Kafka stream
JOIN user_positions p ON t.user_id = p.user_id AND t.symbol = p.symbol
JOIN symbol_metadata s ON t.symbol = s.symbol  
JOIN user_profiles u ON t.user_id = u.user_id
WHERE u.risk_tolerance >= s.risk_rating;
