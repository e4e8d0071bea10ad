"""Tables with awkward values, and the queries that both engines must answer alike."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

NAN = float("nan")
INF = float("inf")


def values() -> pa.Table:
    """Every scalar type with its edges, nulls included; `k` groups the rows, `n` numbers them."""
    columns = {
        "n": pa.array(range(12), pa.int32()),
        "k": pa.array(["a", "b", "a", None, "b", "c", "a", None, "é", "Z", "z", ""], pa.string()),
        "flag": pa.array([True, False, None] * 4, pa.bool_()),
        "tiny": pa.array([1, -128, 127, None, 0, 5, 6, 7, 8, 9, -3, 11], pa.int8()),
        "small": pa.array([1, -32768, 32767, None, 0, 5, 6, 7, 8, 9, -3, 11], pa.int16()),
        "i": pa.array([1, -2147483648, 2147483647, None, 0, 5, -7, 7, 8, 9, -3, 11], pa.int32()),
        "j": pa.array([10, -(2**63), 2**63 - 1, None, 0, 2**53 + 1, -7, 7, 8, 9, -3, 11], pa.int64()),
        "d": pa.array([1.5, -0.0, 0.0, None, NAN, INF, -INF, 1e308, 5e-324, NAN, 0.1, -2.5], pa.float64()),
        "f": pa.array([1.5, -0.0, 0.0, None, NAN, INF, -INF, 1e30, 1e-30, NAN, 0.1, -2.5], pa.float32()),
        "money": pa.array(
            [
                Decimal(text) if text is not None else None
                for text in (
                    *("1.00", "-1.00", "99999999999999.99", None, "0.00", "0.01"),
                    *("12345.67", "-0.01", "2.50", "3.33", "7.77", "100.10"),
                )
            ],
            pa.decimal128(18, 2),
        ),
        "fine": pa.array(
            [
                Decimal(text) if text is not None else None
                for text in (
                    *("1.0000", "0.0001", "-0.0001", None, "99999.9999", "-99999.9999"),
                    *("0.5000", "1.5000", "2.5000", "-0.5000", "-1.5000", "0.1235"),
                )
            ],
            pa.decimal128(9, 4),
        ),
        "huge": pa.array(
            [
                Decimal(text) if text is not None else None
                for text in (
                    *("1.0000000000", "-1.0000000000", "9999999999999999999999999999.9999999999", None),
                    *("0", "1e-10", "12.5", "-12.5", "3", "4", "5", "6"),
                )
            ],
            pa.decimal128(38, 10),
        ),
        "s": pa.array(
            [
                "apple",
                "Banana",
                "",
                None,
                " padded ",
                "100%",
                "a_b",
                "日本語",
                "straße",
                "🤦 face",
                "APPLE",
                "app",
            ],
            pa.string(),
        ),
        "word": pa.array(
            ["apple", "Banana", "", None, " padded ", "100%", "a_b", "x", "y", "zz", "APPLE", "app"],
            pa.string(),
        ),
        "day": pa.array(
            [
                *(date(2024, 1, 31), date(2024, 2, 29), date(1970, 1, 1), None, date(1969, 12, 31)),
                *(date(2023, 12, 31), date(2024, 12, 30), date(1900, 3, 1), date(2100, 2, 28)),
                *(date(2024, 1, 1), date(2024, 6, 15), date(2000, 2, 29)),
            ],
            pa.date32(),
        ),
        "at": pa.array(
            [
                datetime(2024, 1, 31, 23, 59, 59, 999999, tzinfo=UTC),
                datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC),
                datetime(1970, 1, 1, tzinfo=UTC),
                None,
                datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
                datetime(2023, 12, 31, 0, 0, 1, tzinfo=UTC),
                datetime(2024, 12, 30, 6, 7, 8, 90, tzinfo=UTC),
                datetime(1900, 3, 1, 1, 2, 3, tzinfo=UTC),
                datetime(2100, 2, 28, 23, 0, tzinfo=UTC),
                datetime(2024, 1, 1, tzinfo=UTC),
                datetime(2024, 6, 15, 10, 20, 30, 400000, tzinfo=UTC),
                datetime(2000, 2, 29, tzinfo=UTC),
            ],
            pa.timestamp("us", tz="UTC"),
        ),
        "MixedCase": pa.array(range(0, 24, 2), pa.int64()),
    }
    return pa.table(columns)


def labels() -> pa.Table:
    """A small table to join with; a key twice, a null key, and keys that are not in `values`."""
    return pa.table(
        {
            "k": pa.array(["a", "b", "b", None, "missing", "Z"], pa.string()),
            "label": pa.array(["first", "second", "third", "nothing", "lost", None], pa.string()),
            "rate": pa.array(
                [Decimal("0.10"), Decimal("0.25"), None, Decimal("1.00"), Decimal("2.00"), None]
            ),
            "x": pa.array([0.0, NAN, -0.0, 1.5, None, 2.0], pa.float64()),
            "j": pa.array([10, 7, 8, None, 9, 2**63 - 1], pa.int64()),
        }
    ).cast(
        pa.schema(
            [
                pa.field("k", pa.string()),
                pa.field("label", pa.string()),
                pa.field("rate", pa.decimal128(5, 2)),
                pa.field("x", pa.float64()),
                pa.field("j", pa.int64()),
            ]
        )
    )


def nested() -> pa.Table:
    """Types that only pass through."""
    return pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "list": pa.array([[1, None], [], None], pa.list_(pa.int64())),
            "point": pa.array(
                [{"x": 1, "y": "a"}, None, {"x": None, "y": None}],
                pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())]),
            ),
            "raw": pa.array([b"\x00\xff", b"", None], pa.binary()),
        }
    )


EXPRESSIONS = """
n, tiny, small, i, j, d, f, money, fine, huge, s, day, at, flag, `MixedCase`, mixedcase, V.MIXEDCASE
i = j, i <> n, i < 5, i <= j, j > 1.5, j >= d, money = fine, money < 2, money <= 2.505, fine > n, huge = fine
d = d, d > 0, d <=> NULL, k <=> NULL, k = 'a', k < 'b', s > 'a', s <= 'é', s >= '', s <> k
day = '2024-02-29', day > DATE '2000-01-01', at >= '2024-01-01', at < TIMESTAMP '2024-02-29 12:30:15', '2024-01-01' <= at
flag = true, flag <> false, flag <=> NULL, f = f, f < f, d > i, fine < d
i BETWEEN 0 AND 8, money NOT BETWEEN 0 AND 5.5, day BETWEEN '2000-01-01' AND '2024-01-31', s BETWEEN 'a' AND 'b'
i IN (1, 2, 5), i IN (1, NULL), i NOT IN (1, NULL), k IN ('a', 'é'), money IN (1, 2.5), d IN (0, 1.5), day IN ('1970-01-01')
flag AND i > 0, flag OR i > 0, NOT flag, flag IS TRUE, flag IS NOT TRUE, flag IS FALSE, i IS NULL, i IS NOT NULL
k IS DISTINCT FROM 'a', k IS NOT DISTINCT FROM NULL
tiny + n, small - n, n + n, n + 1, MixedCase + n, MixedCase - 5000000000, n * n, n * 3000000000, d + 1, d - d, d * 2, d * n
money + 1, money + fine, money - 0.005, fine * fine, fine * n, money * 2, money * fine, 1.5 * fine, -money, -n, -d, - 5
fine + n, n - fine, money + MixedCase, 1 + 0.25, 3 * 1.50, 2147483648 + 1, -9223372036854775807 - 1
n / 3, MixedCase / 7, d / 2, n / 0.5e0, n div 5, -n div 4, -7 div 2, MixedCase div 3, n % 5, -n % 4, MixedCase % 7, d % 2, -7 % 3
CAST(n AS BIGINT), CAST(n AS SMALLINT), CAST(n AS DECIMAL(10,2)), CAST(n AS DOUBLE), CAST(j AS DOUBLE), CAST(j AS STRING)
CAST(i AS STRING), CAST(fine AS DECIMAL(12,6)), CAST(fine AS DECIMAL(7,1)), CAST(fine AS DECIMAL(6,0)), CAST(fine AS DOUBLE)
CAST(f AS DOUBLE), CAST(at AS DATE), CAST(day AS TIMESTAMP), CAST(day AS STRING), CAST(flag AS STRING), CAST(NULL AS INT), CAST('2024-02-29' AS DATE), CAST('2024-02-29 01:02:03.5' AS TIMESTAMP)
n :: bigint, CAST(money AS DECIMAL(20,3)), CAST(5 AS TINYINT)
CASE WHEN i > 5 THEN 'big' WHEN i > 0 THEN 'small' END, CASE k WHEN 'a' THEN 1 WHEN 'b' THEN 2 ELSE 0 END
CASE WHEN flag THEN n ELSE j END, CASE WHEN flag THEN money ELSE fine END, CASE WHEN flag THEN n ELSE 1.5 END, CASE WHEN flag THEN NULL ELSE day END
upper(word), lower(word), ucase(word), lcase(word), length(s), len(s), char_length(s), character_length(s)
concat(s, '-', k), s || k, concat(k), concat_ws(',', s, k, NULL), concat_ws('', 'a', 'b')
substring(s, 2, 3), substr(s, 1), substring(s, 3), substring(s, 1, 0), substring(s FROM 2 FOR 1), trim(s), ltrim(s), rtrim(s), trim('  ünï  ')
replace(s, 'a', 'bb'), replace(s, '日', ''), startswith(s, 'a'), endswith(s, ' '), contains(s, 'pp'), contains(s, ''), instr(s, 'p'), instr(s, '本'), instr(s, 'zzz'), position('p' IN s)
s LIKE 'a%', s LIKE '%p_e', s LIKE '100%', s NOT LIKE '%本%', s LIKE '_', s LIKE '', s LIKE '__語', s LIKE 'A%'
coalesce(k, s, 'x'), coalesce(i, j), coalesce(money, fine), coalesce(NULL, i), nvl(k, 'none'), ifnull(d, 0), nullif(i, 5), nullif(k, 'a'), nullif(d, d)
if(flag, 1, 2), if(i > 0, money, 0), if(flag, s, NULL), greatest(n, i), greatest(n, 1.5, fine), least(k, s), least(d, 0.5e0), greatest(d, 1e0), greatest(day, DATE '2000-01-01')
isnull(k), isnotnull(k), isnan(d), abs(-n), abs(money), abs(d), abs(fine)
round(money, 1), round(fine, 2), round(fine), round(fine, 7), round(n, 2), floor(fine), ceil(fine), ceiling(money), floor(n), ceil(j), sqrt(abs(d))
year(day), quarter(day), month(day), day(day), dayofmonth(at), dayofweek(day), dayofyear(at), weekofyear(day), year(at), hour(at), minute(at), second(at)
extract(YEAR FROM at), extract(MONTH FROM day), extract(HOUR FROM at), extract(DAY FROM day)
date_trunc('year', at), date_trunc('quarter', at), date_trunc('MONTH', at), date_trunc('week', at), date_trunc('day', at), date_trunc('hour', at), date_trunc('minute', at), date_trunc('second', at)
date_add(day, 3), date_sub(day, n), date_add(day, -40), datediff(day, DATE '2000-01-01'), datediff(DATE '2024-01-01', day), date(at)
day + INTERVAL 1 DAY, day - INTERVAL 2 MONTHS, day + INTERVAL 1 YEAR, at + INTERVAL '90' MINUTE, at - INTERVAL 1 HOUR, at + INTERVAL 1 MONTH, at + INTERVAL 2 WEEKS, at - INTERVAL '15' SECOND, at + INTERVAL 3 DAYS
now() > TIMESTAMP '2020-01-01 00:00:00', current_timestamp() < at, current_date() > day, curdate() > DATE '2020-01-01'
1, 1.50, 'text', true, NULL, 1e3, 3000000000, 12345678901234567890, DATE '2024-01-01', -1.5, 0.05, 10L, 1.5D
"""
"""Expressions over `values v`, one query per line."""

ROUGH_EXPRESSIONS = ("sum(d)", "avg(d)")

QUERIES = """
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
SELECT 1 AS one, 'x' AS x
"""
"""Whole queries; those over doubles' sums are compared by tolerance in a test of their own."""

SPARK_ONLY = """
SELECT money / fine FROM v
SELECT avg(money) FROM v
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
"""
"""Queries that must be left to Spark."""


def lines(text: str) -> list[str]:
    """The lines that say something."""
    return [line.strip() for line in text.strip().splitlines() if line.strip()]
