CREATE TABLE t (timestamp TIMESTAMP, date DATE, time STRING, status STRING, count BIGINT, key STRING PRIMARY KEY,
                value STRING, order INT, offset BIGINT, partition INT, metrics MAP<STRING, DOUBLE>, properties STRUCT<a: INT>);
SELECT timestamp, date, time, status, count, key, value, order, offset, partition, metrics, properties FROM t;
SELECT t.timestamp, t.date, t.order, t.offset, t.partition FROM t WHERE offset > 1 AND status = 'x' AND order < 3;
SELECT status, count(*) AS count, max(timestamp) AS timestamp FROM t GROUP BY status ORDER BY count DESC;
SELECT offset, count(*) FROM t GROUP BY offset ORDER BY offset LIMIT 5 OFFSET 2;
SELECT window, n FROM (SELECT window(timestamp, "5 minutes") AS window, count(*) AS n FROM t GROUP BY window(timestamp, "5 minutes")) GROUP BY window, n;
SELECT count, sum(value) FROM t GROUP BY count HAVING sum(order) > 1;
SELECT date, timestamp + INTERVAL 1 HOUR, date_add(date, 1) AS time FROM t WHERE timestamp > now() - INTERVAL 1 HOUR;
SELECT metrics['cpu'] AS cpu, properties.a, t.properties.a AS b FROM t;
INSERT INTO t (key, value, order, offset) VALUES ('a', 'b', 1, 2);
UPDATE t SET value = 'x', status = 'y', timestamp = now(), order = order + 1 WHERE key = 'a';
SELECT `a b`.value FROM t AS `a b`;
SELECT partition, row_number() OVER (PARTITION BY partition ORDER BY offset) AS rank FROM t;
