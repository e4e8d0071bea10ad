-- Whole queries that DuckDB must answer exactly as Spark does.
SELECT * FROM v
SELECT v.*, l.label FROM v JOIN l ON v.k = l.k
SELECT count(*), count(k), count(DISTINCT k), count(DISTINCT d), count(1), count(*) FILTER (WHERE i > 0), count_if(flag) FROM v
SELECT sum(tiny), sum(small), sum(n), sum(DISTINCT n), sum(money), sum(fine), sum(MixedCase) FROM v
SELECT min(i), max(j), min(d), max(d), min(money), max(fine), min(s), max(s), min(day), max(at), min(flag), max(f), min(huge) FROM v
SELECT avg(n), avg(tiny), avg(i), mean(small) FROM v
SELECT avg(j) FROM v WHERE n <> 1 AND n <> 2 AND n <> 5
SELECT bool_and(flag), every(flag), bool_or(flag), some(flag), any(flag) FROM v
SELECT count(*), sum(n), min(s), avg(n), max(money) FROM v WHERE n > 1000
SELECT k, count(*) AS c, sum(money) AS m, min(d) AS d FROM v GROUP BY k
SELECT d, count(*) FROM v GROUP BY d
SELECT f, count(*) FROM v GROUP BY f
SELECT d + 1 AS e, count(*) FROM v GROUP BY d + 1
SELECT money, flag, count(*) FROM v GROUP BY money, flag
SELECT day, at, count(*) FROM v GROUP BY 1, 2
SELECT upper(word) AS w, count(*) AS c FROM v GROUP BY w HAVING c > 1 OR w = ''
SELECT k, sum(n) AS total FROM v GROUP BY k HAVING sum(n) > 5 AND count(*) >= 1
SELECT k, sum(n) + 1 AS total, count(*) * 2 FROM v GROUP BY k HAVING total > 3
SELECT n % 3 AS r, avg(n) AS a, sum(fine) AS f FROM v GROUP BY n % 3
SELECT DISTINCT k FROM v
SELECT DISTINCT d FROM v
SELECT DISTINCT flag, k FROM v
SELECT n, d FROM v ORDER BY d, n
SELECT n, d FROM v ORDER BY d DESC, n DESC
SELECT n, s FROM v ORDER BY s, n
SELECT n, s FROM v ORDER BY s DESC NULLS FIRST, n
SELECT n, k FROM v ORDER BY k ASC NULLS LAST, n DESC
SELECT n AS m FROM v ORDER BY -m
SELECT n FROM v ORDER BY money DESC, 1
SELECT n FROM v ORDER BY 1 LIMIT 3
SELECT n FROM v ORDER BY n DESC LIMIT 3 OFFSET 2
SELECT k, count(*) FROM v GROUP BY k ORDER BY count(*) DESC, k
SELECT n + 1 AS a, a * 2 AS b, b - n AS c FROM v
SELECT v.n, l.label, l.rate FROM v LEFT JOIN l ON v.k = l.k
SELECT v.n, l.label FROM v RIGHT JOIN l ON v.k = l.k
SELECT v.n, l.label FROM v FULL OUTER JOIN l ON v.k = l.k AND v.n > 1
SELECT v.n, l.label FROM v CROSS JOIN l WHERE v.n < 2
SELECT v.n, l.label FROM v, l WHERE v.k = l.k AND l.rate > 0.1
SELECT n FROM v LEFT SEMI JOIN l ON v.k = l.k
SELECT n FROM v LEFT ANTI JOIN l ON v.k = l.k
SELECT n FROM v LEFT ANTI JOIN l ON v.k <=> l.k
SELECT k, n, label FROM v JOIN l USING (k)
SELECT k, n, label FROM v LEFT JOIN l USING (k)
SELECT k, n, label FROM v RIGHT JOIN l USING (k)
SELECT k, n, label FROM v FULL JOIN l USING (k)
SELECT * FROM l JOIN (SELECT k, n FROM v) q USING (k)
SELECT v.n, l.label FROM v JOIN l ON v.d = l.x
SELECT v.n, l.label FROM v JOIN l ON v.j = l.j
SELECT a.n, b.n FROM v a JOIN v b ON a.k = b.k AND a.n < b.n
SELECT a.n, b.n, c.label FROM v a JOIN v b ON a.n + 1 = b.n LEFT JOIN l c ON b.k = c.k
SELECT v.n, money * rate AS m FROM v JOIN l ON v.k = l.k
SELECT n, (SELECT max(rate) FROM l) AS m FROM v
SELECT n, (SELECT max(l.rate) FROM l WHERE l.k = v.k) AS m FROM v
SELECT n, (SELECT count(*) FROM l WHERE l.k = v.k) AS m FROM v
SELECT n FROM v WHERE n = (SELECT max(n) FROM v)
SELECT n FROM v WHERE fine > (SELECT avg(n) FROM v)
SELECT n FROM v WHERE k IN (SELECT k FROM l)
SELECT n FROM v WHERE k NOT IN (SELECT k FROM l WHERE k IS NOT NULL)
SELECT n FROM v WHERE k NOT IN (SELECT k FROM l)
SELECT n FROM v WHERE EXISTS (SELECT 1 FROM l WHERE l.k = v.k AND l.rate > 0.1)
SELECT n FROM v WHERE NOT EXISTS (SELECT * FROM l WHERE l.k = v.k)
SELECT k FROM l WHERE j IN (SELECT j FROM v WHERE v.k = l.k)
SELECT q.k, q.c FROM (SELECT k, count(*) AS c FROM v GROUP BY k) q WHERE q.c > 1
SELECT max(c) FROM (SELECT count(*) AS c FROM v GROUP BY k)
WITH q AS (SELECT k, n FROM v WHERE n > 2), r AS (SELECT k, sum(n) AS t FROM q GROUP BY k) SELECT q.n, r.t FROM q JOIN r ON q.k = r.k
WITH q(a, b) AS (SELECT k, n FROM v) SELECT a, sum(b) FROM q GROUP BY a
WITH q AS (SELECT n FROM v) SELECT n FROM q WHERE n IN (SELECT n + 1 FROM q)
SELECT k FROM v UNION SELECT k FROM l
SELECT k FROM v UNION ALL SELECT k FROM l
SELECT k FROM v EXCEPT SELECT k FROM l
SELECT k FROM v EXCEPT ALL SELECT k FROM l
SELECT k FROM v INTERSECT SELECT k FROM l
SELECT k FROM v INTERSECT ALL SELECT k FROM l
SELECT k FROM v UNION ALL SELECT label FROM l ORDER BY k NULLS LAST LIMIT 5
(SELECT n FROM v ORDER BY n LIMIT 2) UNION ALL (SELECT n FROM v ORDER BY n DESC LIMIT 2)
SELECT n, row_number() OVER (PARTITION BY k ORDER BY n) AS r FROM v
SELECT n, rank() OVER (ORDER BY k) AS r, dense_rank() OVER (ORDER BY k) AS q FROM v
SELECT n, percent_rank() OVER (ORDER BY k) AS r, cume_dist() OVER (ORDER BY k DESC) AS q, ntile(5) OVER (ORDER BY n) AS t FROM v
SELECT n, lag(money) OVER (ORDER BY n) AS a, lead(s, 2) OVER (ORDER BY n) AS b, lag(n, 1, -1) OVER (PARTITION BY k ORDER BY n) AS c FROM v
SELECT n, first_value(s) OVER (PARTITION BY k ORDER BY n) AS a, last_value(n) OVER (PARTITION BY k ORDER BY n) AS b FROM v
SELECT n, sum(n) OVER (ORDER BY n) AS a, sum(money) OVER (PARTITION BY k) AS b, count(*) OVER () AS c, avg(n) OVER (PARTITION BY flag) AS d FROM v
SELECT n, sum(n) OVER (ORDER BY n ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a, max(n) OVER (ORDER BY n ROWS UNBOUNDED PRECEDING) AS b FROM v
SELECT n, min(fine) OVER (ORDER BY d RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS a, count(d) OVER (PARTITION BY d) AS c FROM v
SELECT n, last_value(n) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS a FROM v
SELECT k, sum(n) AS s, rank() OVER (ORDER BY sum(n) DESC) AS r FROM v GROUP BY k
SELECT * FROM (SELECT n, row_number() OVER (PARTITION BY k ORDER BY n DESC) AS r FROM v) WHERE r = 1
SELECT * FROM nested
SELECT id, raw FROM nested WHERE id > 1
SELECT -n AS n FROM v ORDER BY n
SELECT n AS k, k AS m FROM v WHERE k IS NOT NULL ORDER BY v.k, v.n
SELECT n AS x, count(*) FROM v GROUP BY x ORDER BY x
SELECT n AS d, count(*) AS c FROM v GROUP BY n HAVING c > 0
SELECT 1 AS one, 'x' AS x
SELECT avg(money), avg(fine), avg(DISTINCT money), avg(CAST(n AS DECIMAL(20,8))) FROM v
SELECT k, avg(money) AS a, avg(fine) AS b, avg(-fine) AS c FROM v GROUP BY k
SELECT avg(money) FROM v WHERE n > 1000
SELECT n, avg(money) OVER (PARTITION BY k) AS a, avg(fine) OVER (ORDER BY n) AS b FROM v
SELECT sum(money) / count(*) AS a, sum(fine) / sum(n) AS b FROM v
SELECT * FROM v NATURAL JOIN l
SELECT v.n, label FROM v NATURAL LEFT JOIN l
SELECT K, count(*) AS c FROM v JOIN l USING (K) GROUP BY v.k HAVING C > 0
SELECT * FROM (SELECT k, n FROM v) a JOIN (SELECT n, k FROM v) b USING (n) JOIN (SELECT k AS j, n FROM v) c USING (n)
SELECT * FROM (SELECT k, n FROM v) a FULL JOIN (SELECT n + 1 AS n, k FROM v) b USING (n) FULL JOIN (SELECT n + 2 AS n, s FROM v) c USING (n)
SELECT b.*, a.* FROM (SELECT k, n FROM v) a RIGHT JOIN (SELECT n + 1 AS n, k AS j FROM v) b USING (n)
SELECT N, count(*) AS c FROM (SELECT k, n FROM v) a FULL JOIN (SELECT n + 1 AS n FROM v) b USING (n) GROUP BY n HAVING n > 1 ORDER BY N
SELECT * FROM (SELECT k, n FROM v) a LEFT ANTI JOIN (SELECT n + 1 AS n FROM v) b USING (n)
SELECT n + 1 AS n, count(*) AS c FROM v GROUP BY n HAVING n > 1
SELECT k AS n, sum(n) AS k FROM v GROUP BY k HAVING n IS NOT NULL
SELECT k, sum(n) AS n FROM v GROUP BY k HAVING sum(n) > 1 AND n > 2
SELECT v.N, V.k AS kk FROM v ORDER BY n, KK
SELECT sum(n) AS n FROM v GROUP BY k HAVING n > 2
SELECT n FROM v WHERE n > 3 OR k IN (SELECT k FROM l)
SELECT n FROM v WHERE n > 3 OR k NOT IN (SELECT k FROM l)
SELECT k, count(*) FROM v GROUP BY k HAVING count(*) > 1 OR k IN (SELECT k FROM l)
