"""Queries over the relation `src`, one or more for every kind of plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A table: its query, the tables it is built on, and whether `src` must be a table itself."""

    name: str
    sql: str
    needs: tuple[str, ...] = ()
    over_table: bool = False
    properties: str = ""


CASES = (
    # each row by itself
    Case("r_all", "SELECT * FROM src"),
    Case(
        "r_filter",
        "SELECT id, n * 2 AS twice"
        ", CASE WHEN n > 50 THEN 'big' WHEN n IS NULL THEN 'none' ELSE 'small' END AS size"
        " FROM src WHERE grp IN ('a', 'b') OR price > 50",
    ),
    Case("r_arithmetic", "SELECT upper(grp) AS g, price + 1.5 AS p, price * n AS pn, n / 7 AS q FROM src"),
    Case("r_union", "SELECT id, grp FROM src UNION ALL SELECT n, 'other' FROM src WHERE n > 40"),
    Case("r_explode", "SELECT id, explode(array(n, n + 1)) AS x FROM src"),
    Case("r_cte", "WITH z AS (SELECT id, n FROM src WHERE n > 10) SELECT id, n + 1 AS m FROM z WHERE n < 90"),
    # last row per key
    Case("k_id", "SELECT id, grp, price FROM src WHERE flag IS NOT NULL", properties=' WITH ("key" = "id")'),
    # groups that merge
    Case(
        "g_sums",
        "SELECT grp, COUNT(*) AS c, SUM(n) AS s, SUM(price) AS sp, AVG(price) AS ap, AVG(n) AS an"
        ", COUNT(n) AS cn,"
        " COUNT_IF(flag) AS ci FROM src GROUP BY grp",
    ),
    Case(
        "g_extremes",
        "SELECT grp, MIN(price) AS a, MAX(price) AS b, MIN(id) AS i, MAX(at) AS t, bool_and(flag) AS al,"
        " bool_or(flag) AS an, MAX(ratio) AS mr, MIN(grp) AS mg FROM src GROUP BY grp",
    ),
    Case(
        "g_any",
        "SELECT flag, COUNT(DISTINCT n) AS d, stddev(ratio) AS sd, percentile(n, 0.5) AS med,"
        " array_sort(collect_set(grp)) AS cs, SUM(ratio) AS sr, approx_count_distinct(id) AS ac"
        " FROM src GROUP BY flag",
    ),
    Case(
        "g_filter",
        "SELECT flag, SUM(n) FILTER (WHERE grp = 'a') AS fa, COUNT(*) FILTER (WHERE n > 50) AS fb,"
        " COUNT(*) + 1 AS c1, SUM(price) / COUNT(*) AS r, AVG(price) FILTER (WHERE n > 20) AS av"
        " FROM src GROUP BY flag",
    ),
    Case("g_having", "SELECT grp, COUNT(*) AS c FROM src GROUP BY grp HAVING COUNT(*) > 3 AND SUM(n) > 20"),
    Case("g_global", "SELECT COUNT(*) AS c, SUM(price) AS s, MIN(n) AS mn, AVG(n) AS an FROM src"),
    Case("g_global_having", "SELECT COUNT(*) AS c, SUM(n) AS s FROM src HAVING COUNT(*) > 12"),
    Case(
        "g_expression", "SELECT n % 5 AS m, date_trunc('DAY', at) AS d, COUNT(*) AS c FROM src GROUP BY 1, 2"
    ),
    Case(
        "g_alias",
        "SELECT coalesce(n, 0) > 50 AS big, COUNT(*) AS c, MAX(n) - MIN(n) AS span FROM src GROUP BY big",
    ),
    Case("g_all", "SELECT flag, grp, SUM(price) AS s FROM src GROUP BY ALL"),
    Case("g_hidden_key", "SELECT COUNT(*) AS c, MAX(id) AS m FROM src GROUP BY grp, flag"),
    Case("g_null_keys", "SELECT n, flag, COUNT(*) AS c FROM src GROUP BY n, flag"),
    Case("g_distinct", "SELECT DISTINCT grp, flag FROM src"),
    Case("g_distinct_all", "SELECT DISTINCT * FROM src"),
    Case(
        "g_subquery",
        "SELECT w, MAX(price) AS m, COUNT(*) AS c FROM (SELECT n % 3 AS w, price FROM src"
        " WHERE n IS NOT NULL)"
        " GROUP BY w",
    ),
    # tables on tables
    Case("d_keyed", "SELECT grp, c FROM g_sums WHERE c > 2", needs=("g_sums",)),
    Case("d_counts", "SELECT c, COUNT(*) AS k, SUM(sp) AS sp FROM g_sums GROUP BY c", needs=("g_sums",)),
    Case("d_deep", "SELECT SUM(k) AS total, MAX(c) AS top FROM d_counts", needs=("g_sums", "d_counts")),
    Case("d_rows", "SELECT id, twice FROM r_filter WHERE twice > 40", needs=("r_filter",)),
    Case("d_having", "SELECT COUNT(*) AS groups, SUM(c) AS c FROM g_having", needs=("g_having",)),
    Case("d_distinct", "SELECT DISTINCT g FROM r_arithmetic", needs=("r_arithmetic",)),
    Case(
        "j_inner", "SELECT r.id, g.c FROM r_all r JOIN g_sums g ON r.grp = g.grp", needs=("r_all", "g_sums")
    ),
    Case(
        "j_left",
        "SELECT r.id, k.price FROM r_filter r LEFT JOIN k_id k ON r.id = k.id",
        needs=("r_filter", "k_id"),
    ),
    Case(
        "j_not_in",
        "SELECT id FROM k_id WHERE id NOT IN (SELECT id FROM r_filter) AND EXISTS (SELECT 1 FROM r_all)",
        needs=("r_filter", "k_id", "r_all"),
    ),
    Case(
        "j_right",
        "SELECT r.id, r.twice, k.grp FROM k_id k RIGHT JOIN r_filter r ON r.id = k.id AND k.price > 20",
        needs=("r_filter", "k_id"),
    ),
    Case(
        "j_full",
        "SELECT a.id AS one, b.id AS other, a.n + b.n AS s FROM src a FULL JOIN src b"
        " ON a.grp = b.grp AND a.n = b.n AND a.id < b.id",
        over_table=True,
    ),
    Case(
        "j_three",
        "SELECT r.id, g.c, h.c AS shown FROM r_all r LEFT JOIN g_sums g ON r.grp = g.grp"
        " LEFT JOIN g_having h ON g.grp = h.grp WHERE r.n > 20 OR g.c > 2",
        needs=("r_all", "g_sums", "g_having"),
    ),
    Case(
        "j_expression",
        "SELECT a.id, b.id AS next FROM r_all a JOIN r_all b"
        " ON a.id + 1 = b.id AND upper(a.grp) = upper(b.grp)",
        needs=("r_all",),
    ),
    Case(
        "j_null_safe",
        "SELECT a.id, b.c FROM k_id a LEFT JOIN g_sums b ON a.grp <=> b.grp",
        needs=("k_id", "g_sums"),
    ),
    Case("j_semi", "SELECT * FROM r_all a LEFT SEMI JOIN k_id b ON a.id = b.id", needs=("r_all", "k_id")),
    Case(
        "j_anti",
        "SELECT a.grp, a.n FROM r_all a LEFT ANTI JOIN g_having b USING (grp)",
        needs=("r_all", "g_having"),
    ),
    Case(
        "j_in",
        "SELECT id, n FROM r_all WHERE grp IN (SELECT grp FROM g_sums WHERE c > 2) AND n > 10",
        needs=("r_all", "g_sums"),
    ),
    Case(
        "j_exists",
        "SELECT id FROM r_all a WHERE EXISTS (SELECT 1 FROM k_id k WHERE k.grp = a.grp AND k.price > 60)"
        " AND NOT EXISTS (SELECT 1 FROM r_filter f WHERE a.id = f.id AND f.size = 'big')",
        needs=("r_all", "k_id", "r_filter"),
    ),
    Case(
        "j_comma",
        "SELECT a.id, b.c FROM r_all a, g_sums b WHERE a.grp = b.grp AND b.c > 1",
        needs=("r_all", "g_sums"),
    ),
    Case(
        "j_using",
        "SELECT grp, r.id, g.c FROM r_all r FULL JOIN g_having g USING (grp)",
        needs=("r_all", "g_having"),
    ),
    Case(
        "j_subquery",
        "WITH big AS (SELECT grp, COUNT(*) AS c, MAX(n) AS m FROM r_all GROUP BY grp HAVING COUNT(*) > 1)"
        " SELECT r.id, big.c, big.m - r.n AS behind FROM r_all r JOIN big ON r.grp = big.grp",
        needs=("r_all",),
    ),
    Case(
        "j_key",
        "SELECT k.id, k.price, g.c FROM k_id k JOIN g_sums g ON k.grp = g.grp",
        needs=("k_id", "g_sums"),
        properties=' WITH ("key" = "id")',
    ),
    Case("j_non_equi", "SELECT a.c, b.c AS d FROM g_sums a JOIN g_sums b ON a.c < b.c", needs=("g_sums",)),
    # groups over joins
    Case(
        "jg_sums",
        "SELECT g.c, COUNT(*) AS k, SUM(r.n) AS s, SUM(r.price * g.c) AS p, AVG(r.price) AS a"
        " FROM r_all r JOIN g_sums g ON r.grp = g.grp GROUP BY g.c",
        needs=("r_all", "g_sums"),
    ),
    Case(
        "jg_extremes",
        "SELECT coalesce(r.n, 0) % 3 AS m, MAX(k.price) AS p, COUNT(DISTINCT k.grp) AS d, SUM(r.ratio) AS x"
        " FROM r_all r LEFT JOIN k_id k ON r.id = k.id GROUP BY coalesce(r.n, 0) % 3",
        needs=("r_all", "k_id"),
    ),
    Case(
        "jg_global",
        "SELECT COUNT(*) AS c, MIN(k.price) AS p FROM r_all r JOIN k_id k USING (id)",
        needs=("r_all", "k_id"),
    ),
    Case(
        "jg_having",
        "SELECT r.grp, COUNT(*) AS c FROM r_all r JOIN k_id k ON r.id = k.id"
        " GROUP BY r.grp HAVING COUNT(*) > 2",
        needs=("r_all", "k_id"),
    ),
    Case(
        "jg_distinct",
        "SELECT DISTINCT r.flag, k.grp FROM r_all r JOIN k_id k ON r.id = k.id",
        needs=("r_all", "k_id"),
    ),
    Case(
        "jg_deep",
        "SELECT c, COUNT(*) AS k, MAX(s) AS m FROM jg_sums GROUP BY c",
        needs=("r_all", "g_sums", "jg_sums"),
    ),
    # windows and sets by key
    Case(
        "o_partition",
        "SELECT id, grp, rank() OVER (PARTITION BY grp ORDER BY id) AS r"
        ", SUM(n) OVER (PARTITION BY grp, flag) AS s FROM r_all",
        needs=("r_all",),
    ),
    Case(
        "o_top",
        "SELECT id, grp, price FROM"
        " (SELECT *, row_number() OVER (PARTITION BY grp ORDER BY price DESC, id) AS rn"
        " FROM r_all) WHERE rn <= 2",
        needs=("r_all",),
    ),
    Case(
        "o_qualify",
        "SELECT r.id, g.c FROM r_all r JOIN g_sums g ON r.grp = g.grp"
        " QUALIFY row_number() OVER (PARTITION BY g.c ORDER BY r.id) = 1",
        needs=("r_all", "g_sums"),
    ),
    Case(
        "s_union", "SELECT grp AS g, n FROM r_all UNION SELECT grp, c FROM g_sums", needs=("r_all", "g_sums")
    ),
    Case(
        "s_except",
        "SELECT grp, n FROM r_all WHERE flag EXCEPT SELECT grp, n FROM r_all WHERE NOT flag",
        needs=("r_all",),
    ),
    Case("s_intersect", "SELECT n FROM r_all INTERSECT ALL SELECT c FROM g_sums", needs=("r_all", "g_sums")),
    Case(
        "s_both",
        "SELECT r.id FROM r_all r JOIN k_id k ON r.id = k.id UNION ALL SELECT n FROM r_all WHERE flag",
        needs=("r_all", "k_id"),
    ),
    # the whole query again
    Case("c_top", "SELECT id, price FROM r_all ORDER BY price DESC, id LIMIT 3", needs=("r_all",)),
    Case(
        "c_over",
        "SELECT id, rank() OVER (PARTITION BY grp ORDER BY id) AS r"
        ", SUM(n) OVER (PARTITION BY flag) AS s FROM r_all",
        needs=("r_all",),
    ),
    Case("c_scalar", "SELECT id FROM src WHERE n > (SELECT AVG(n) FROM src)", over_table=True),
    Case("c_rollup", "SELECT grp, flag, COUNT(*) AS c FROM src GROUP BY ROLLUP (grp, flag)", over_table=True),
    Case("c_except", "SELECT n FROM src EXCEPT SELECT id FROM src", over_table=True),
    Case("c_union", "SELECT grp AS g FROM src UNION SELECT 'x'", over_table=True),
)
BY_NAME = {case.name: case for case in CASES}


def closed(names: set[str]) -> list[Case]:
    """The named cases and all that they need, in an order in which they can be created."""
    wanted = names | {need for name in names for need in BY_NAME[name].needs}
    return [case for case in CASES if case.name in wanted]
