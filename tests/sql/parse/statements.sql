-- every statement of the language
CREATE SOURCE trades (
    trade_id STRING, symbol STRING, price DECIMAL(12, 4), quantity BIGINT, ts TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) FROM kafka://localhost:9092/trades WITH ("format" = "json", 'group.id' = 'velo');
CREATE SOURCE IF NOT EXISTS clicks FROM kafka_topic('clicks');
CREATE OR REPLACE SOURCE rates (currency STRING PRIMARY KEY, rate DECIMAL(18, 8)) FROM file:///data/rates.csv;
CREATE SOURCE lines FROM 'file:///logs/app-*.json' WITH ("watch" = "true");

CREATE TABLE positions AS
SELECT symbol, SUM(quantity) AS size, SUM(quantity * price) AS value FROM trades GROUP BY symbol;
CREATE TABLE IF NOT EXISTS latest (symbol STRING PRIMARY KEY, price DECIMAL(12, 4)) AS
SELECT symbol, MAX(price) FROM trades GROUP BY symbol WITH ("retention" = "7d");
CREATE OR REPLACE TABLE big AS SELECT * FROM trades WHERE quantity > 1000 WITH ("key" = "trade_id");
CREATE TABLE users (user_id BIGINT PRIMARY KEY, name STRING, joined DATE);
CREATE TABLE grants (user_id BIGINT, role STRING, since TIMESTAMP, PRIMARY KEY (user_id, role)) WITH ("retention" = "30d");
CREATE STREAM large AS SELECT trade_id, symbol, price * quantity AS notional FROM trades WHERE quantity > 100;
CREATE STREAM copied AS SELECT * FROM trades WITH ("sink" = "file:///out/trades.jsonl", "trigger.interval" = "5s");
CREATE VIEW cheap AS SELECT symbol, price FROM trades WHERE price < 10;

INSERT INTO users VALUES (1, 'ann', DATE '2024-01-01'), (2, 'bob', NULL);
INSERT OR REPLACE INTO users (user_id, name) VALUES (2, 'bo''b'), (3, 'it\'s');
INSERT INTO users SELECT user_id, upper(name), joined FROM users WHERE user_id < 0;
INSERT INTO users SELECT :id, :name, :joined;
INSERT INTO users VALUES (?, ?, ?);
INSERT INTO kafka://big-trades SELECT symbol, price FROM trades WHERE price > 100;
INSERT INTO kafka://orders VALUES (1, 'a', 12.50), (?, upper('b'), NULL);
INSERT INTO kafka://orders (id, name) VALUES (1, 'a') WITH ("key" = "id", "format" = "csv");
INSERT INTO kafka://localhost:9092/orders(id, name) SELECT user_id, name FROM users;
INSERT INTO kafka://orders SELECT user_id, name FROM users WHERE user_id = :id;
INSERT INTO kafka://orders SELECT user_id, name FROM users EMIT CHANGES;
INSERT INTO file:///out/summary.csv WITH ("format" = "csv") SELECT symbol, size FROM positions;
UPDATE users SET name = initcap(name), joined = current_date() WHERE user_id = 1;
DELETE FROM users WHERE user_id IN (SELECT user_id FROM grants WHERE role = 'gone');
DELETE FROM grants;

SELECT * FROM positions WHERE symbol = :symbol AND size > :size;
SELECT symbol, price FROM cheap;
(SELECT 1 AS one);
VALUES (1, 'a'), (2, 'b');
WITH top AS (SELECT symbol, value FROM positions ORDER BY value DESC LIMIT 10) SELECT symbol FROM top;

SHOW TABLES; SHOW STREAMS; SHOW SOURCES; SHOW VIEWS; SHOW JOBS; SHOW FUNCTIONS; SHOW CONNECTORS;
SHOW PROPERTIES; SHOW PROPERTIES FOR kafka; show create positions; SHOW CREATE TABLE positions;
DESCRIBE positions; DESC trades; DESCRIBE TABLE users;
EXPLAIN SELECT * FROM positions;
EXPLAIN CREATE TABLE other AS SELECT count(*) AS n FROM trades;
PAUSE JOB positions; RESUME JOB positions-1; STOP JOB 7f3a;
DROP VIEW cheap; DROP TABLE IF EXISTS nothing; DROP STREAM large;
REPLAY DEAD LETTERS; REPLAY DEAD LETTERS WHERE job = 'positions' AND reason LIKE '%cast%';
SELECT * FROM dead_letters WHERE job = 'positions'
