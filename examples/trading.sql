-- Trading analytics over several sources: generated trades, a CSV of reference data, profiles kept by hand.
-- From the folder above this one:
--
--   velo run examples/trading.sql
--   velo sql "SELECT * FROM pnl ORDER BY pnl DESC"          in a second terminal
--
-- Then change a price in examples/symbol_reference.csv, or delete a profile, and ask again: the numbers follow.

-- Every trade counts in the position of its user and symbol.
CREATE TABLE user_positions AS
SELECT
    user_id,
    symbol,
    SUM(quantity) AS position_size,
    SUM(quantity * price) AS position_value
FROM datagen://trades?rows_per_second=500
GROUP BY user_id, symbol;

-- Reference data; the file is watched: when a line is edited, the old row leaves and the new one comes.
CREATE TABLE symbol_metadata AS
SELECT symbol, sector, market_cap, risk_rating, last_price
FROM file://${TRADING_DATA:examples}/symbol_reference.csv;

CREATE TABLE user_profiles (
    user_id STRING PRIMARY KEY,
    name STRING,
    account_type STRING,
    risk_tolerance INT,
    max_position_size BIGINT
);

INSERT INTO user_profiles VALUES
    ('u1', 'Ada', 'margin', 5, 100000),
    ('u2', 'Ben', 'cash', 2, 20000),
    ('u3', 'Cleo', 'margin', 4, 50000),
    ('u4', 'Dan', 'cash', 3, 20000),
    ('u5', 'Eve', 'margin', 5, 100000),
    ('u6', 'Finn', 'pension', 1, 10000);

-- What each trader holds, at cost and at the last price, in symbols that are not too risky for them.
CREATE TABLE pnl AS
SELECT
    u.user_id,
    u.name,
    u.risk_tolerance,
    COUNT(*) AS positions,
    SUM(p.position_value) AS cost,
    SUM(p.position_size * s.last_price) AS market_value,
    SUM(p.position_size * s.last_price - p.position_value) AS pnl
FROM user_positions p
JOIN symbol_metadata s ON s.symbol = p.symbol
JOIN user_profiles u ON u.user_id = p.user_id
WHERE u.risk_tolerance >= s.risk_rating
GROUP BY u.user_id, u.name, u.risk_tolerance;
