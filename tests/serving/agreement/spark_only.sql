-- Queries that must be left to Spark: the engines differ, or nobody has shown that they do not.
SELECT huge / huge FROM v
SELECT huge / 8 FROM v
SELECT money / CAST(3 AS BIGINT) FROM v
SELECT money + 10L FROM v
SELECT huge * huge FROM v
SELECT huge + 1 FROM v
SELECT CAST(s AS INT) FROM v
SELECT CAST(d AS INT) FROM v
SELECT CAST(huge AS DOUBLE) FROM v
SELECT s = 5 FROM v
SELECT n = d AND s FROM v
SELECT i + j FROM v
SELECT -j FROM v
SELECT sum(j) FROM v WHERE j > 0
SELECT avg(j) FROM v
SELECT n / 0 FROM v
SELECT n % 0 FROM v
SELECT n div 0 FROM v
SELECT upper(s) FROM v
SELECT round(d, 2) FROM v
SELECT regexp_replace(s, 'a', 'b') FROM v
SELECT s RLIKE 'a' FROM v
SELECT collect_list(n) FROM v
SELECT explode(list) FROM nested
SELECT list[0] FROM nested
SELECT point.x FROM nested
SELECT DISTINCT list FROM nested
SELECT count(*) FROM v GROUP BY ROLLUP (k)
SELECT n FROM v TABLESAMPLE (10 PERCENT)
SELECT n FROM v WHERE n = ANY (SELECT n FROM v)
SELECT n FROM v LATERAL VIEW explode(array(1, 2)) x AS y
SELECT percentile(n, 0.5) FROM v
SELECT n FROM v QUALIFY row_number() OVER (ORDER BY n) = 1
SELECT n AS k FROM v UNION SELECT k FROM l
SELECT TRY_CAST(n AS TINYINT) FROM v
SELECT sum(n) OVER w FROM v WINDOW w AS (ORDER BY n)
SELECT (SELECT n FROM v) FROM v
SELECT * EXCEPT (n) FROM v
SELECT avg(huge) FROM v
SELECT -n AS n FROM v ORDER BY n + 1
SELECT money / 0 FROM v
SELECT money / (n - n) FROM v
SELECT n, k IN (SELECT k FROM l) FROM v
SELECT n FROM v WHERE (k IN (SELECT k FROM l)) IS NULL
SELECT n FROM v WHERE NOT (n > 1 AND k IN (SELECT k FROM l))
SELECT k, (SELECT max(rate) FROM l WHERE l.k = v.k) FROM v GROUP BY k
SELECT money + NULL FROM v
