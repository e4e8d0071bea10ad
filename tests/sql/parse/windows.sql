CREATE SOURCE trades (symbol STRING, price DECIMAL(10, 2), volume BIGINT, event_time TIMESTAMP, ts TIMESTAMP) FROM kafka://trades;
SELECT symbol, SUM(volume) FROM trades WINDOW TUMBLING PARTITION BY symbol EVERY 5 MINUTES;
SELECT symbol, SUM(volume) FROM trades WINDOW TUMBLING(INTERVAL '5' MINUTE) GROUP BY symbol;
SELECT symbol, SUM(volume) FROM trades GROUP BY symbol WINDOW TUMBLING(5m);
SELECT symbol, window_start, window_end, SUM(volume) FROM trades WINDOW TUMBLING(event_time, INTERVAL '5' MINUTE) GROUP BY symbol EMIT FINAL;
SELECT symbol, COUNT(*) FROM trades WINDOW SLIDING(INTERVAL '10' MINUTE, INTERVAL '2' MINUTE) GROUP BY symbol;
SELECT symbol, COUNT(*) FROM trades WINDOW SLIDING PARTITION BY symbol EVERY 2 MINUTES SIZE 10 MINUTES EMIT CHANGES;
SELECT symbol, COUNT(*) FROM trades WINDOW SLIDING(10m, 2m) GROUP BY symbol EMIT CHANGES EVERY 5 SECONDS;
SELECT symbol, COUNT(*), _window_start FROM trades WHERE volume > 0 WINDOW SESSION(INTERVAL '30' SECOND) GROUP BY symbol HAVING COUNT(*) > 1;
SELECT symbol, COUNT(*) AS n FROM trades WINDOW SESSION(30s) PARTITION BY symbol EMIT FINAL;
SELECT AVG(price) OVER (ROWS WINDOW BUFFER 100 ROWS PARTITION BY symbol ORDER BY ts) AS moving FROM trades;
SELECT AVG(price) OVER (ROWS WINDOW BUFFER 50 ROWS PARTITION BY symbol ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) FROM trades EMIT CHANGES;
SELECT symbol, AVG(price) FROM trades WINDOW ROWS 100 PARTITION BY symbol;
SELECT symbol, ROW_NUMBER() OVER w AS n, LAG(price) OVER w FROM trades WINDOW w AS (PARTITION BY symbol ORDER BY ts);
SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS start, TUMBLE_END(ts, INTERVAL '1' MINUTE), COUNT(*) FROM trades WINDOW TUMBLING(ts, 1m);
SELECT window.start, window.end, symbol, SUM(volume) FROM trades GROUP BY window(ts, '5 minutes'), symbol;
SELECT session_window(ts, '5 minutes') AS w, COUNT(*) FROM trades GROUP BY session_window(ts, '5 minutes');
CREATE TABLE per_minute AS
SELECT symbol, COUNT(*) AS n FROM trades WINDOW TUMBLING(ts, 1 MINUTE) GROUP BY symbol
EMIT CHANGES EVERY INTERVAL '2' SECOND
WITH ("grace" = "10s", "late.rows" = "update");
SELECT a.symbol FROM trades a JOIN trades b ON a.symbol = b.symbol AND a.ts BETWEEN b.ts AND b.ts + INTERVAL '5' MINUTE;
SELECT a.symbol FROM trades a JOIN trades b ON a.symbol = b.symbol WITHIN INTERVAL '5' MINUTE WHERE a.price > 1;
SELECT a.symbol, b.price FROM trades a ASOF JOIN trades b ON a.symbol = b.symbol AND a.ts >= b.ts;
SELECT a.symbol, b.price FROM trades a LEFT JOIN trades b ON a.symbol = b.symbol WITHIN INTERVAL 10 SECONDS EMIT CHANGES;
SELECT COUNT(*) FROM trades EMIT FINAL;
SELECT symbol FROM trades UNION ALL SELECT symbol FROM trades EMIT CHANGES WITH ("trigger.interval" = "1s");
SELECT HEADER('trace') AS trace, HAS_HEADER('x'), HEADER_KEYS(), _key, _topic, _timestamp, _offset FROM trades;
INSERT INTO kafka://out SELECT symbol, SET_HEADER('a', symbol), REMOVE_HEADER('b') FROM trades;
SELECT symbol, window_start, COUNT(*) FROM TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '5' MINUTES) GROUP BY symbol, window_start, window_end;
SELECT t.symbol, COUNT(*) FROM HOP(TABLE trades, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTES) t GROUP BY t.symbol;
SELECT symbol, COUNT(*) FROM SESSION(trades PARTITION BY symbol, ts, 30s) GROUP BY symbol;
SELECT k, COUNT(*) FROM TUMBLE(kafka://orders, ts, 1m) GROUP BY k;
SELECT symbol, COUNT(*) FROM SESSION(TABLE trades PARTITION BY (symbol, price), DESCRIPTOR(ts), INTERVAL '30' SECOND) GROUP BY symbol;
