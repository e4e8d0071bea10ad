-- Every clause of SELECT, over t, u and e.
SELECT id, day + INTERVAL 1 MONTH AS r FROM t
SELECT id, day - INTERVAL '2' YEAR AS r FROM t
SELECT id, ts + INTERVAL 1 MONTH AS r FROM t
SELECT id, add_months(day, 2) AS r, add_months(day, -i) AS r2 FROM t
SELECT id, ts + INTERVAL '1 02:03:04' DAY TO SECOND AS r FROM t
SELECT id, ts + make_dt_interval(i, 1) AS r FROM t
SELECT id, make_dt_interval(i, 1) AS r FROM t
SELECT id, INTERVAL '1 02:03:04' DAY TO SECOND AS r FROM t
SELECT id, day - DATE'2024-01-01' AS r FROM t
SELECT day - DATE'2024-01-01' AS r, count(*) AS c FROM t GROUP BY day - DATE'2024-01-01'
SELECT g, listagg(s, ',') WITHIN GROUP (ORDER BY s) AS r FROM t GROUP BY g
SELECT g, string_agg(s, ',') WITHIN GROUP (ORDER BY s DESC) AS r FROM t GROUP BY g
SELECT g, listagg(DISTINCT s, ',') WITHIN GROUP (ORDER BY s DESC) AS r FROM t GROUP BY g
SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY n DESC) AS r, percentile_disc(0.25) WITHIN GROUP (ORDER BY n) AS q FROM t GROUP BY g
SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY n) FILTER (WHERE n > 1) AS r FROM t GROUP BY g
SELECT g, mode() WITHIN GROUP (ORDER BY n) AS r, mode() WITHIN GROUP (ORDER BY n DESC) AS r2 FROM t GROUP BY g
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n) AS r FROM t
SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY n) OVER (PARTITION BY g) AS r FROM t
SELECT g, any_value(g) AS r FROM t GROUP BY g
SELECT id, first_value(n) IGNORE NULLS OVER (PARTITION BY g ORDER BY id) AS r FROM t
SELECT id, last_value(n) IGNORE NULLS OVER (PARTITION BY g ORDER BY id) AS r FROM t
SELECT id, nth_value(n, 2) IGNORE NULLS OVER (PARTITION BY g ORDER BY id) AS r FROM t
SELECT id, nth_value(n, 2) RESPECT NULLS OVER (PARTITION BY g ORDER BY id) AS r FROM t
SELECT id, lag(n) IGNORE NULLS OVER (PARTITION BY g ORDER BY id) AS r, lead(n, 1, -1) IGNORE NULLS OVER (PARTITION BY g ORDER BY id) AS q FROM t
SELECT id, first_value(n) OVER (ORDER BY id) AS r FROM t
SELECT g, b, count(*) AS c FROM t GROUP BY GROUPING SETS ((g), (b), ())
SELECT g, b, count(*) AS c FROM t GROUP BY g, b GROUPING SETS ((g, b), (g))
SELECT g, b, count(*) AS c, grouping(g) AS gg, grouping_id() AS gi FROM t GROUP BY CUBE (g, b)
SELECT g, b, sum(n) AS c, grouping_id(g, b) AS gi FROM t GROUP BY ROLLUP (g, b)
SELECT g, b, sum(n) AS c FROM t GROUP BY g, b WITH ROLLUP
SELECT g, b, sum(n) AS c FROM t GROUP BY g, b WITH CUBE
SELECT upper(g) AS k, i % 2 AS p, sum(n) AS c FROM t GROUP BY ROLLUP (upper(g), i % 2) HAVING count(*) > 1
SELECT g, b, count(*) AS c FROM t GROUP BY g, ROLLUP(b)
SELECT s LIKE 'a%' AS k, count(*) AS c FROM t GROUP BY ROLLUP (s LIKE 'a%')
SELECT s NOT LIKE 'a%' AS k, i > 1 AND i < 3 AS p, count(*) AS c FROM t GROUP BY GROUPING SETS ((s NOT LIKE 'a%'), (i > 1 AND i < 3))
SELECT s IS NULL AS k, b, count(*) AS c FROM t GROUP BY CUBE (s IS NULL, b)
SELECT g, b, i, count(*) AS c FROM t GROUP BY CUBE(g), ROLLUP(b, i)
SELECT t.g, u.v, count(*) AS c, grouping(u.v) AS q FROM t JOIN u ON t.g = u.g GROUP BY CUBE (t.g, u.v)
SELECT t.g, sum(u.w) AS c FROM t LEFT JOIN u ON t.g = u.g GROUP BY ROLLUP (t.g) HAVING grouping(t.g) = 0
SELECT g, b, count(DISTINCT n) AS c FROM t GROUP BY GROUPING SETS ((g, b), ROLLUP(g))
SELECT g AS k, count(*) AS c FROM t GROUP BY ROLLUP(k)
SELECT g, count(*) AS c FROM t GROUP BY ROLLUP(1)
WITH a AS (SELECT g, n FROM t) SELECT x.g, x.v FROM (WITH a AS (SELECT g, v FROM u) SELECT * FROM a) x
WITH u AS (SELECT id, g FROM t) SELECT * FROM u
WITH u AS (SELECT * FROM u WHERE v > 1) SELECT * FROM u
WITH t AS (SELECT g, v FROM u) SELECT g, sum(v) AS s FROM t GROUP BY g
WITH a AS (WITH a AS (SELECT g FROM t) SELECT DISTINCT g FROM a) SELECT count(*) AS c FROM a
WITH RECURSIVE r(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM r WHERE k < 5) SELECT k FROM r
WITH RECURSIVE r(k) AS (SELECT id FROM t WHERE id = 1 UNION ALL SELECT k + 1 FROM r WHERE k < 5) SELECT k FROM r
WITH a(q, z) AS (SELECT g, n FROM t) SELECT q, sum(z) AS s FROM a GROUP BY q
SELECT g, min_by(DISTINCT n, id) AS r FROM t GROUP BY g
SELECT g, covar_pop(DISTINCT n, i) AS r, covar_samp(DISTINCT n, i) AS r2 FROM t GROUP BY g
SELECT g, regr_slope(DISTINCT n, i) AS r, regr_count(DISTINCT n, i) AS r2 FROM t GROUP BY g
SELECT g, sort_array(collect_list(DISTINCT n)) AS r FROM t GROUP BY g
SELECT g, sum(DISTINCT n) AS r, avg(DISTINCT n) AS r2, count(DISTINCT n, i) AS c FROM t GROUP BY g
SELECT g, histogram_numeric(DISTINCT n, 3) AS r FROM t GROUP BY g
SELECT g, approx_count_distinct(DISTINCT n) AS r FROM t GROUP BY g
SELECT g, bit_and(DISTINCT n) AS r, bit_or(DISTINCT n) AS r1, bit_xor(DISTINCT n) AS r2 FROM t GROUP BY g
SELECT g, max_by(DISTINCT n, id) AS r, stddev(DISTINCT n) AS s, variance(DISTINCT n) AS v FROM t GROUP BY g
SELECT g, percentile(DISTINCT n, 0.5) AS r, median(DISTINCT n) AS m FROM t GROUP BY g
SELECT g, min(DISTINCT n) AS r, max(DISTINCT n) AS m, bool_and(DISTINCT b) AS q, count_if(DISTINCT b) AS w FROM t GROUP BY g
SELECT g, skewness(DISTINCT n) AS r, kurtosis(DISTINCT n) AS m FROM t GROUP BY g
SELECT id FROM t ORDER BY id LIMIT 1 + 1
SELECT id FROM t ORDER BY id LIMIT 2 OFFSET 1 + 1
SELECT id FROM t ORDER BY id OFFSET 3
SELECT id FROM t ORDER BY id LIMIT CAST(2 AS INT)
SELECT id FROM t ORDER BY id LIMIT abs(-2)
SELECT * FROM (SELECT id FROM t ORDER BY id LIMIT 1 + 1) ORDER BY id DESC LIMIT 2 - 1
SELECT id FROM t ORDER BY id LIMIT 0
-- lateral view, lateral
SELECT id, a FROM t LATERAL VIEW explode(arr) x AS a
SELECT id, a FROM t LATERAL VIEW OUTER explode(arr) x AS a
SELECT id, p, a FROM t LATERAL VIEW posexplode(arr) x AS p, a
SELECT id, k, v FROM t LATERAL VIEW explode(m) x AS k, v
SELECT a, count(*) AS c FROM t LATERAL VIEW explode(arr) x AS a GROUP BY a
SELECT t.id, z.s2 FROM t, LATERAL (SELECT t.n + 1 AS s2) z
SELECT t.id, z.v FROM t, LATERAL (SELECT v FROM u WHERE u.g = t.g) z
SELECT t.id, z.c FROM t LEFT JOIN LATERAL (SELECT count(*) AS c FROM u WHERE u.g = t.g) z ON true
SELECT t.id, z.col FROM t, LATERAL explode(arr) z
SELECT t.id, z.a FROM t, LATERAL explode(arr) AS z(a)
SELECT id, explode(arr) AS a FROM t
SELECT id, explode(m) AS (k, v) FROM t
SELECT id, posexplode_outer(arr) AS (p, a) FROM t
SELECT id, inline(array(st)) FROM t
SELECT explode(arr) AS a, count(*) AS c FROM t GROUP BY arr
SELECT a, sum(id) AS s FROM (SELECT id, explode(arr) AS a FROM t) GROUP BY a
-- pivot
SELECT * FROM (SELECT g, b, n FROM t) PIVOT (sum(n) FOR b IN (true, false))
SELECT * FROM (SELECT g, b, n FROM t) PIVOT (sum(n) AS s, count(n) AS c FOR b IN (true AS yes, false AS no))
SELECT * FROM (SELECT g, i, n FROM t) PIVOT (max(n) FOR i IN (1, 2, 3))
SELECT g, yes FROM (SELECT g, b, n FROM t) PIVOT (sum(n) FOR b IN (true AS yes)) WHERE yes IS NOT NULL
SELECT * FROM (SELECT id, n, i FROM t) UNPIVOT (val FOR name IN (n))
SELECT * FROM (SELECT id, n, CAST(i AS BIGINT) AS i FROM t) UNPIVOT INCLUDE NULLS (val FOR name IN (n AS one, i AS two))
SELECT * FROM (SELECT id, n, CAST(i AS BIGINT) AS i FROM t) UNPIVOT EXCLUDE NULLS (val FOR name IN (n, i)) x
SELECT name, sum(val) AS s FROM (SELECT id, n, CAST(i AS BIGINT) AS i FROM t) UNPIVOT (val FOR name IN (n, i)) GROUP BY name
-- values, range
SELECT t.id, v.x FROM t JOIN VALUES ('a', 1), ('b', 2) AS v(g, x) ON t.g = v.g
SELECT t.id, v.x FROM t JOIN (VALUES ('a', 1), ('b', 2)) AS v(g, x) ON t.g = v.g
SELECT t.id, r.id AS r FROM t CROSS JOIN range(2) r
SELECT t.id, r.id AS r FROM t JOIN range(1, 4) r ON t.id = r.id
SELECT r.id AS r, count(t.id) AS c FROM range(0, 10, 2) r LEFT JOIN t ON t.id = r.id GROUP BY r.id
SELECT * FROM range(3)
SELECT * FROM VALUES (1, 'a'), (2, 'b') AS v(x, y)
SELECT 1 AS one, 'x' AS two
SELECT id, n FROM t UNION ALL VALUES (100L, 5L)
SELECT id FROM t WHERE g IN (SELECT col1 FROM VALUES ('a'), ('c'))
-- qualify, windows
SELECT id, row_number() OVER (PARTITION BY g ORDER BY id) AS r FROM t QUALIFY r = 1
SELECT id, g FROM t QUALIFY row_number() OVER (PARTITION BY g ORDER BY id DESC) = 1
SELECT id, sum(n) OVER w AS s, avg(n) OVER w AS a FROM t WINDOW w AS (PARTITION BY g ORDER BY id)
SELECT id, count(*) OVER w AS c, max(id) OVER z AS m FROM t WINDOW w AS (PARTITION BY g), z AS (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
SELECT id, sum(n) OVER (ORDER BY id RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM t
SELECT id, sum(n) OVER (PARTITION BY g ORDER BY day RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND CURRENT ROW) AS s FROM t
SELECT id, sum(n) OVER (PARTITION BY g ORDER BY ts RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW) AS s FROM t
SELECT id, ntile(2) OVER (PARTITION BY g ORDER BY id) AS q, cume_dist() OVER (PARTITION BY g ORDER BY id) AS cd, percent_rank() OVER (PARTITION BY g ORDER BY id) AS pr, dense_rank() OVER (PARTITION BY g ORDER BY n) AS dr FROM t
SELECT id, count(DISTINCT n) FILTER (WHERE n > 1) AS c FROM t GROUP BY id
SELECT id, sum(n) FILTER (WHERE i > 1) OVER (PARTITION BY g) AS s FROM t
SELECT g, sum(n) AS s, rank() OVER (ORDER BY sum(n) DESC, g) AS r FROM t GROUP BY g
SELECT g, sum(sum(n)) OVER (ORDER BY g) AS running FROM t GROUP BY g
SELECT id, listagg(s, ',') WITHIN GROUP (ORDER BY s) OVER (PARTITION BY g) AS l FROM t
-- group by / order by all, star
SELECT g, b, count(*) AS c FROM t GROUP BY ALL
SELECT g, upper(g) AS u2, sum(n) + 1 AS c FROM t GROUP BY ALL
SELECT g, b FROM t GROUP BY ALL
SELECT id, g FROM t ORDER BY ALL
SELECT id, g FROM t ORDER BY ALL LIMIT 3
SELECT g, count(*) AS c FROM t GROUP BY ALL ORDER BY ALL
SELECT * EXCEPT (arr, m, st, bin) FROM t
SELECT t.* EXCEPT (arr, m, st, bin), u.v FROM t JOIN u ON t.g = u.g
SELECT struct(*) AS r FROM (SELECT id, g FROM t)
SELECT st.* FROM t
SELECT id, st.a AS a, st.b AS b2 FROM t
SELECT count(*) AS c, count(1) AS c1, count(n, i) AS c2, count(DISTINCT g, b) AS c3 FROM t
SELECT DISTINCT g, b FROM t
SELECT DISTINCT arr FROM t
SELECT ALL g FROM t
SELECT g FROM t GROUP BY g HAVING count(*) > 1 ORDER BY g
SELECT g AS k, count(*) AS c FROM t GROUP BY k HAVING c > 1
SELECT count(*) AS c FROM t HAVING c > 1
SELECT count(*) AS c FROM e
SELECT g, count(*) AS c FROM e GROUP BY g
SELECT sum(n) AS s, max(n) AS m FROM e
SELECT max(id) AS m FROM t HAVING max(id) > 100
SELECT n + 1 AS a, a * 2 AS b2 FROM t
SELECT i % 2 AS k, count(*) AS c FROM t GROUP BY 1
SELECT i % 2 AS k, count(*) AS c FROM t GROUP BY i % 2
SELECT (i % 2) + 1 AS k, count(*) AS c FROM t GROUP BY i % 2
SELECT st.a AS k, count(*) AS c FROM t GROUP BY st.a
SELECT arr AS k, count(*) AS c FROM t GROUP BY arr
SELECT st AS k, count(*) AS c FROM t GROUP BY st
SELECT b AS k, count(*) AS c, bool_or(b) AS o FROM t GROUP BY b
SELECT x AS k, count(*) AS c FROM t GROUP BY x
SELECT bin AS k, count(*) AS c FROM t GROUP BY bin
-- lambdas, literals
SELECT id, transform(arr, e -> e + 1) AS a, filter(arr, e -> e > 1) AS f, exists(arr, e -> e = 1) AS x2 FROM t
SELECT id, aggregate(arr, 0, (acc, e) -> acc + coalesce(e, 0), acc -> acc * 10) AS a FROM t
SELECT id, transform(arr, (e, k) -> e + k) AS a, zip_with(arr, arr, (p, q) -> p * q) AS z FROM t
SELECT id, map_filter(m, (k, v) -> v > 1) AS a, transform_values(m, (k, v) -> v + 1) AS tv, transform_keys(m, (k, v) -> upper(k)) AS tk FROM t
SELECT id, array(1, n, null) AS a, map('x', n) AS mm, named_struct('p', n, 'q', g) AS ns, struct(n, g) AS ss FROM t
SELECT id, arr[0] AS a, m['k'] AS mk, st.a AS sa, element_at(m, 'k') AS em FROM t WHERE id <> 6
SELECT id, CASE WHEN n > 3 THEN 'big' WHEN n IS NULL THEN 'none' ELSE 'small' END AS c, CASE g WHEN 'a' THEN 1 WHEN 'b' THEN 2 END AS d2 FROM t
SELECT id, if(n > 3, 'x', 'y') AS c, nvl2(n, 1, 2) AS d2, decode(g, 'a', 1, 'b', 2, 3) AS dd FROM t
SELECT id FROM t WHERE (g, id) IN (SELECT g, v FROM u)
SELECT id FROM t WHERE g NOT IN ('a')
SELECT id FROM t WHERE n BETWEEN 2 AND 5 OR g LIKE 'b%' OR s RLIKE '^h' OR s ILIKE 'w%'
SELECT id FROM t WHERE s LIKE ANY ('h%', 'W%')
SELECT id FROM t WHERE s LIKE ALL ('h%', '%o')
SELECT id FROM t WHERE s NOT LIKE ALL ('h%', '%x')
SELECT id FROM t WHERE n IS DISTINCT FROM 3
SELECT id FROM t WHERE n IS NOT DISTINCT FROM 3
SELECT id FROM t WHERE n <=> null
SELECT id FROM t WHERE b IS TRUE OR b IS NOT UNKNOWN
SELECT id, n DIV 2 AS a, n % 2 AS b1, -n AS c, +n AS d1, n / 2 AS e1, d * 2 AS f1 FROM t
SELECT id, g || '-' || s AS a, n::string AS b1, CAST(n AS DECIMAL(10,2)) AS c, try_cast(s AS INT) AS d1 FROM t
SELECT id, 1.5 AS a, 1.5D AS b1, 1.5F AS c, 1.5BD AS d1, 1L AS e1, 1S AS f1, 1Y AS g1, X'1F' AS h1, 1e3 AS i1, r'\n' AS j1, 'it''s' AS k1 FROM t
SELECT id, extract(YEAR FROM ts) AS a, extract(SECOND FROM ts) AS b1, date_part('month', day) AS c, trim(BOTH 'h' FROM s) AS d1, overlay(s PLACING 'XX' FROM 2 FOR 1) AS e1, position('l' IN s) AS f1, substring(s FROM 2 FOR 2) AS g1 FROM t
SELECT id, s COLLATE UTF8_LCASE AS c FROM t
SELECT id FROM t WHERE s COLLATE UTF8_LCASE = 'HELLO'
-- subqueries
SELECT id, (SELECT max(v) FROM u) AS m FROM t
SELECT id, (SELECT max(v) FROM u WHERE u.g = t.g) AS m FROM t
SELECT id, (SELECT count(*) FROM u WHERE u.g = t.g) AS m FROM t
SELECT id FROM t WHERE n > (SELECT avg(v) FROM u WHERE u.g = t.g)
SELECT id FROM t WHERE n > (SELECT min(v) FROM u)
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.g = t.g AND u.v < t.id)
SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.g = t.g)
SELECT id FROM t WHERE g NOT IN (SELECT g FROM u WHERE g IS NOT NULL)
SELECT id FROM t WHERE g NOT IN (SELECT g FROM u)
SELECT id, g IN (SELECT g FROM u) AS q FROM t
SELECT id, EXISTS (SELECT 1 FROM u WHERE u.g = t.g) AS q FROM t
SELECT id, CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.g = t.g) THEN 1 ELSE 0 END AS q FROM t
SELECT g, count(*) AS c FROM t GROUP BY g HAVING count(*) > (SELECT count(*) FROM u WHERE v > 4)
SELECT g, count(*) AS c FROM t GROUP BY g HAVING g IN (SELECT g FROM u)
SELECT t.id FROM t JOIN u ON t.g = u.g AND u.v = (SELECT max(v) FROM u)
SELECT id FROM t WHERE g IN (SELECT g FROM u GROUP BY g HAVING count(*) > 1)
SELECT id FROM t WHERE g IN (SELECT g FROM u WHERE v IN (SELECT n FROM t))
SELECT id FROM t WHERE g IN (SELECT g FROM u) OR n > 5
SELECT id FROM t WHERE NOT (g IN (SELECT g FROM u))
SELECT id FROM t ORDER BY (SELECT max(v) FROM u), id LIMIT 2
SELECT sum((SELECT max(v) FROM u)) AS s FROM t
SELECT * FROM (SELECT g, count(*) AS c FROM t GROUP BY g) x WHERE c > 1
SELECT x.g, y.c FROM (SELECT DISTINCT g FROM t) x JOIN (SELECT g, count(*) AS c FROM u GROUP BY g) y ON x.g = y.g
-- set operations
SELECT g FROM t UNION SELECT g FROM u
SELECT g FROM t UNION ALL SELECT g FROM u
SELECT g FROM t EXCEPT SELECT g FROM u
SELECT g FROM t EXCEPT ALL SELECT g FROM u
SELECT g FROM t MINUS SELECT g FROM u
SELECT g FROM t INTERSECT SELECT g FROM u
SELECT g FROM t INTERSECT ALL SELECT g FROM u
(SELECT g FROM t UNION SELECT g FROM u) EXCEPT (SELECT g FROM u INTERSECT SELECT g FROM t WHERE id > 3)
SELECT g FROM (SELECT g FROM t UNION SELECT g FROM u) GROUP BY g
SELECT n FROM t UNION ALL SELECT w FROM u
SELECT g FROM t UNION SELECT g FROM u ORDER BY g LIMIT 2
-- joins
SELECT id FROM t LEFT SEMI JOIN u ON t.g = u.g
SELECT id FROM t LEFT ANTI JOIN u ON t.g = u.g
SELECT id FROM t ANTI JOIN u ON t.g = u.g AND u.v > 1
SELECT t.id, u.v FROM t FULL OUTER JOIN u ON t.g = u.g
SELECT t.id, u.v FROM t RIGHT JOIN u ON t.g <=> u.g
SELECT t.id, u.v FROM t CROSS JOIN u
SELECT t.id, u.v FROM t, u WHERE t.g = u.g
SELECT t.id, u.v FROM t JOIN u ON t.n < u.v
SELECT t.id, u.v FROM t LEFT JOIN u ON t.g = u.g AND u.v > t.n
SELECT t.id, g, v FROM t JOIN u USING (g)
SELECT a.id, b.id AS id2 FROM t a JOIN t b ON a.g = b.g AND a.id < b.id
SELECT /*+ BROADCAST(u) */ t.id, u.v FROM t JOIN u ON t.g = u.g
-- pipe
SELECT id, g FROM t SORT BY id
SELECT id, g FROM t DISTRIBUTE BY g
SELECT id, g FROM t CLUSTER BY g
SELECT g, sum(n) AS s FROM (SELECT g, n FROM t ORDER BY n LIMIT 3) GROUP BY g
SELECT id, g, n FROM t WHERE id = 1 LIMIT 5
SELECT id, variant_get(parse_json('{"a":1}'), '$.a', 'int') AS v FROM t
SELECT id, array(INTERVAL 1 DAY) AS v FROM t
SELECT id, named_struct('i', INTERVAL 1 DAY) AS v FROM t
SELECT id, CAST(g AS CHAR(3)) AS a, CAST(g AS VARCHAR(3)) AS b1, CAST(n AS FLOAT) AS c, CAST(n AS SMALLINT) AS c2, CAST(i AS TINYINT) AS c3 FROM t
SELECT * EXCEPT (id) FROM t
SELECT * EXCEPT (id, arr, m, st, bin) FROM t
SELECT CAST(id AS STRING) AS id, g FROM t
SELECT CAST(id AS BOOLEAN) AS id, g FROM t
SELECT CAST(id / 2 AS INT) AS id, g FROM t
SELECT st.a AS id, g FROM t
SELECT id AS g, g AS id FROM t
SELECT s COLLATE UTF8_LCASE AS k, count(*) AS c FROM t GROUP BY s COLLATE UTF8_LCASE
SELECT DISTINCT s COLLATE UTF8_LCASE AS k FROM t
SELECT max(s COLLATE UTF8_LCASE) AS k FROM t
SELECT g, max(make_ym_interval(0, i)) > INTERVAL '2' MONTH AS q FROM t GROUP BY g
SELECT make_ym_interval(0, i) = INTERVAL '4' MONTH AS q, count(*) AS c FROM t GROUP BY make_ym_interval(0, i)
SELECT a.id, b.id AS id2 FROM t a JOIN t b ON a.arr = b.arr
SELECT a.id, b.id AS id2 FROM t a JOIN t b ON a.st = b.st
SELECT id, ts - lag(ts) OVER (PARTITION BY g ORDER BY id) AS k FROM t
SELECT m AS k, count(*) AS c FROM t GROUP BY m
SELECT DISTINCT st, arr FROM t
SELECT g, sum(d) AS s, first(s) AS f, listagg(s, ',') WITHIN GROUP (ORDER BY s) AS l, date_trunc('MONTH', max(ts)) AS dt FROM t GROUP BY g
SELECT g, sum(d) FILTER (WHERE s RLIKE '^h') AS s, max(date_format(ts, 'yyyy')) AS y FROM t GROUP BY g
SELECT g, max_by(s, id) FILTER (WHERE n > 2) AS s FROM t GROUP BY g
SELECT id, g FROM t WHERE day > DATE'2024-01-01' - INTERVAL 1 MONTH
SELECT g, count(*) AS c FROM t GROUP BY g HAVING max(day) + INTERVAL 1 MONTH > DATE'2024-01-01'
SELECT g, max(day) + INTERVAL 1 MONTH AS c FROM t GROUP BY g
SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY n) AS r FROM t GROUP BY ROLLUP(g)
SELECT g, percentile_cont(array(0.1, 0.9)) WITHIN GROUP (ORDER BY d) AS r FROM t GROUP BY g
SELECT g, listagg(DISTINCT s) AS r FROM t WHERE id < 2 GROUP BY g
SELECT t.g, listagg(u.v::string, ',') WITHIN GROUP (ORDER BY u.v) AS r FROM t JOIN u ON t.g = u.g GROUP BY t.g
SELECT x.g, x.r FROM (SELECT g, listagg(s, ',') WITHIN GROUP (ORDER BY s) AS r FROM t GROUP BY g) x JOIN u ON x.g = u.g
SELECT id, mode() WITHIN GROUP (ORDER BY n) OVER (PARTITION BY g) AS r FROM t
WITH a AS (SELECT g FROM t), b AS (WITH a AS (SELECT v FROM u) SELECT count(*) AS c FROM a) SELECT a.g, b.c FROM a CROSS JOIN b
WITH a AS (SELECT g FROM t) SELECT * FROM a WHERE g IN (WITH a AS (SELECT g FROM u WHERE v > 2) SELECT g FROM a)
WITH RECURSIVE r(k, lvl) AS (SELECT id, 1 FROM t WHERE id = 1 UNION ALL SELECT t.id, lvl + 1 FROM t JOIN r ON t.id = r.k + 1) SELECT * FROM r
SELECT g IN (SELECT g FROM u) AS q, count(*) AS c FROM t GROUP BY g IN (SELECT g FROM u)
SELECT id, (g IN (SELECT g FROM u)) IS NULL AS q FROM t
SELECT id FROM t WHERE (g IN (SELECT g FROM u)) IS NULL
SELECT id FROM t WHERE NOT coalesce(g IN (SELECT g FROM u), true)
SELECT g, (SELECT max(v) FROM u) AS s FROM t GROUP BY g
-- the same in other words
SELECT g, first(g) AS a, last(g) AS b, any_value(g) AS c FROM t GROUP BY g
SELECT id FROM t ORDER BY id LIMIT ALL
SELECT id, collect_list(n) OVER (PARTITION BY g ORDER BY id) AS l FROM t
SELECT id, ts + make_interval(0, i) AS r FROM t
SELECT id FROM t ORDER BY id LIMIT 1 + 1 OFFSET 2 - 1
SELECT id, null AS v FROM t
SELECT id, array(null) AS v FROM t
SELECT null AS v FROM t
SELECT g AS a, g AS b, SUM(n) AS s FROM t GROUP BY ALL
SELECT t.g AS a, t.g AS b, COUNT(*) AS c FROM t JOIN u ON t.g = u.g GROUP BY ALL
SELECT s AS a, s AS b FROM t EXCEPT ALL SELECT g AS x, g AS y FROM u
SELECT NOT t.b AS a, t.B AS c FROM t LEFT JOIN u ON t.g = u.g EXCEPT ALL SELECT b AS x, b AS y FROM t
SELECT g AS a, g AS b FROM t INTERSECT ALL SELECT upper(g), lower(g) FROM u
SELECT q.day AS c, listagg(g, ',') WITHIN GROUP (ORDER BY g) AS l FROM t AS p LEFT ANTI JOIN u ON p.s = u.g RIGHT JOIN t AS q USING (arr, g) GROUP BY q.day HAVING COUNT(q.id) > 0
SELECT g, listagg(s, ',') WITHIN GROUP (ORDER BY s) AS r FROM t GROUP BY g
SELECT listagg(s, ',') WITHIN GROUP (ORDER BY s) AS r, COUNT(DISTINCT n) AS c FROM t
SELECT g, listagg(DISTINCT s, ',') WITHIN GROUP (ORDER BY s DESC) AS r FROM t GROUP BY g
