"""Random SELECTs over three tables of every common type: what analysts write, drawn from a grammar.

Each query gives the same multiset of rows however its rows are ordered or divided, so that any engine can be
held against any other: an order within a window names every column that is shown, LIMIT follows an order by
all columns, lists are sorted. Its columns are called c0, c1, …
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from velostream.runtime.instance import Instance

TABLES = {
    "orders": "id BIGINT PRIMARY KEY, cust BIGINT, qty INT, price DECIMAL(10,2), note STRING, day DATE,"
    " at TIMESTAMP, flag BOOLEAN",
    "customers": "cust BIGINT PRIMARY KEY, name STRING, city STRING, since DATE, score DOUBLE",
    "events": "cust BIGINT, kind STRING, at TIMESTAMP, n INT, tags ARRAY<STRING>",
}
INT, DEC, STR, DAY, TS, BOOL, DBL, TAGS = "int", "dec", "str", "day", "ts", "bool", "dbl", "tags"
COLUMNS = {
    "orders": {
        "id": INT, "cust": INT, "qty": INT, "price": DEC, "note": STR, "day": DAY, "at": TS, "flag": BOOL,
    },
    "customers": {"cust": INT, "name": STR, "city": STR, "since": DAY, "score": DBL},
    "events": {"cust": INT, "kind": STR, "at": TS, "n": INT, "tags": TAGS},
}  # fmt: skip
SHOWN = (INT, INT, DEC, STR, STR, DAY, TS, BOOL, DBL)
WORDS = [None, "", "a", "ab", "Abel", "é", "bab"]
DAYS = date(2023, 12, 30)
UNITS = ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR")


@dataclass(frozen=True)
class Relation:
    """What a name in FROM offers: its columns by kind of value."""

    alias: str
    columns: dict[str, str]


class Selects:
    """Draws one query after the other."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._ctes: dict[str, dict[str, str]] = {}
        self._names = 0

    def query(self) -> str:
        """One query; about a tenth have a WITH, a tenth are set operations."""
        self._ctes, self._names = {}, 0
        rng = self._rng
        head = ""
        if rng.random() < 0.15:
            name = self._name("w")
            kinds = [rng.choice(SHOWN) for _ in range(rng.randint(2, 3))]
            text = self._plain(kinds)
            self._ctes[name] = {f"c{at}": kind for at, kind in enumerate(kinds)}
            head = f"WITH {name} AS ({text}) "
        return head + self._body()

    def _body(self) -> str:
        shape = self._rng.random()
        if shape < 0.12:
            return self._set_operation()
        if shape < 0.45:
            return self._groups()
        if shape < 0.6:
            return self._ranked()
        kinds = [self._rng.choice(SHOWN) for _ in range(self._rng.randint(1, 4))]
        return self._limited(self._plain(kinds), len(kinds))

    # --- shapes ---------------------------------------------------------------------------------------------

    def _plain(self, kinds: list[str]) -> str:
        relations, source = self._from()
        items = ", ".join(f"{self._value(relations, kind)}{self._as()}c{at}" for at, kind in enumerate(kinds))
        distinct = "DISTINCT " if self._rng.random() < 0.15 else ""
        return f"SELECT {distinct}{items} FROM {source}{self._where(relations)}"

    def _limited(self, text: str, width: int) -> str:
        rng = self._rng
        if rng.random() > 0.12:
            return text
        order = ", ".join(
            rng.choice([f"c{at}", str(at + 1)]) + rng.choice(["", " DESC"]) for at in range(width)
        )
        offset = rng.choice(["", "", " OFFSET 1"])
        return f"{text} ORDER BY {order} LIMIT {rng.choice(['3', '1 + 4', '10'])}{offset}"

    def _set_operation(self) -> str:
        rng = self._rng
        kinds = [rng.choice(SHOWN) for _ in range(rng.randint(1, 2))]
        words = ("UNION", "UNION ALL", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL")
        parts = [self._plain(kinds) for _ in range(rng.choice([2, 2, 3]))]
        text = parts[0]
        for part in parts[1:]:
            text = f"({text}) {rng.choice(words)} ({part})"
        return text

    def _groups(self) -> str:
        rng = self._rng
        relations, source = self._from()
        where = self._where(relations)
        keys = [
            self._value(relations, rng.choice([INT, STR, DAY, TS, BOOL])) for _ in range(rng.randint(0, 2))
        ]
        values = [self._aggregate(relations) for _ in range(rng.randint(1, 3))]
        items = [f"{key} AS c{at}" for at, key in enumerate(keys)]
        items += [f"{value} AS c{at + len(keys)}" for at, value in enumerate(values)]
        having = ""
        if keys and rng.random() < 0.3:
            word = rng.choice([">", "<=", "<>"])
            having = f" HAVING {self._aggregate(relations, INT)} {word} {rng.randint(0, 3)}"
        text = f"SELECT {', '.join(items)} FROM {source}{where}{self._grouping(keys)}{having}"
        return self._limited(text, len(items))

    def _grouping(self, keys: list[str]) -> str:
        rng = self._rng
        if not keys:
            return ""
        listed = ", ".join(keys)
        shape = rng.random()
        if shape < 0.5:
            return f" GROUP BY {listed}"
        if shape < 0.65:
            return f" GROUP BY {', '.join(str(at + 1) for at in range(len(keys)))}"
        if shape < 0.78:
            return f" GROUP BY {', '.join(f'c{at}' for at in range(len(keys)))}"
        if shape < 0.85:
            return " GROUP BY ALL"
        if shape < 0.9:
            return f" GROUP BY ROLLUP ({listed})"
        if shape < 0.95:
            return f" GROUP BY CUBE ({listed})"
        return f" GROUP BY GROUPING SETS (({listed}), ({keys[0]}), ())"

    def _ranked(self) -> str:
        rng = self._rng
        relations, source = self._from()
        kinds = [rng.choice([INT, STR, DAY, DEC]) for _ in range(rng.randint(1, 3))]
        inner = ", ".join(f"{self._value(relations, kind)} AS c{at}" for at, kind in enumerate(kinds))
        columns = [f"c{at}" for at in range(len(kinds))]
        order = ", ".join(column + rng.choice(["", " DESC", " NULLS LAST"]) for column in columns)
        by = f"PARTITION BY {rng.choice(columns)} " if rng.random() < 0.75 else ""
        calls = [
            f"row_number() OVER ({by}ORDER BY {order})",
            f"rank() OVER ({by}ORDER BY {order})",
            f"dense_rank() OVER ({by}ORDER BY {rng.choice(columns)})",
            f"ntile(2) OVER ({by}ORDER BY {order})",
            f"lag(c0) OVER ({by}ORDER BY {order})",
            f"lead(c0, 2) OVER ({by}ORDER BY {order})",
            f"first_value(c0) OVER ({by}ORDER BY {order})",
            f"last_value(c0) IGNORE NULLS OVER ({by}ORDER BY {order})",
            f"COUNT(*) OVER ({by}ORDER BY {order} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
            f"MAX(c0) OVER ({by.strip()})",
            f"MIN(c0) OVER ({by}ORDER BY {order} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
            f"COUNT(c0) OVER ({by}ORDER BY {rng.choice(columns)})",
        ]
        call = rng.choice(calls)
        base = f"(SELECT {inner} FROM {source}{self._where(relations)})"
        listed = ", ".join(columns)
        text = f"SELECT {listed}, {call} AS r FROM {base}"
        if call.startswith(("row_number", "rank", "dense_rank")) and rng.random() < 0.6:
            return f"SELECT {listed} FROM ({text}) WHERE r <= 2"
        return text

    # --- FROM -----------------------------------------------------------------------------------------------

    def _from(self) -> tuple[list[Relation], str]:
        rng = self._rng
        first, source = self._relation()
        relations = [first]
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            other, text = self._relation()
            word = rng.choice(
                [
                    "JOIN",
                    "JOIN",
                    "LEFT JOIN",
                    "LEFT JOIN",
                    "RIGHT JOIN",
                    "FULL JOIN",
                    "LEFT SEMI JOIN",
                    "LEFT ANTI JOIN",
                ]
            )
            shared = [name for name in other.columns if all(name in each.columns for each in relations)]
            shape = rng.random()
            if shape < 0.15 and len(relations) == 1 and shared and TAGS not in other.columns.values():
                # The shared columns are named without a relation.
                kind = rng.choice(["NATURAL ", "NATURAL LEFT ", "NATURAL FULL "])
                source += f" {kind}JOIN {text}"
                relations = [_without(relations[0], shared), _without(other, shared)]
                relations.append(Relation("", {name: other.columns[name] for name in shared}))
                relations = [each for each in relations if each.columns]
                break
            if shape < 0.3 and len(relations) == 1 and shared:
                using = rng.sample(shared, rng.randint(1, len(shared)))
                source += f" {word} {text} USING ({', '.join(using)})"
                left = _without(relations[0], using)
                right = [] if "SEMI" in word or "ANTI" in word else [_without(other, using)]
                relations = [left, *right, Relation("", {name: other.columns[name] for name in using})]
                relations = [each for each in relations if each.columns]
                break
            on = self._on(relations, other)
            if shape < 0.36:
                source += f" CROSS JOIN {text}"
            elif shape < 0.42:
                source += f" JOIN {text} ON {self._condition([*relations, other])}"
            else:
                source += f" {word} {text} ON {on}"
                if "SEMI" in word or "ANTI" in word:
                    continue
            relations.append(other)
        tagged = [each for each in relations if each.alias and TAGS in each.columns.values()]
        if tagged and rng.random() < 0.4:
            name = self._name("x")
            outer = rng.choice(["", "OUTER "])
            source += f" LATERAL VIEW {outer}explode({tagged[0].alias}.tags) {name} AS tag"
            relations.append(Relation(name, {"tag": STR}))
        return relations, source

    def _relation(self) -> tuple[Relation, str]:
        rng = self._rng
        alias = self._name("t")
        if self._ctes and rng.random() < 0.6:
            name, columns = rng.choice(sorted(self._ctes.items()))
            return Relation(alias, dict(columns)), f"{name} {alias}"
        table = rng.choice(list(TABLES))
        columns = COLUMNS[table]
        shape = rng.random()
        if shape < 0.72:
            return Relation(alias, dict(columns)), f"{table}{self._as()}{alias}"
        kept = {name: kind for name, kind in columns.items() if kind != TAGS}
        if shape < 0.82:
            me = [Relation("", dict(columns))]
            return Relation(alias, kept), f"(SELECT {', '.join(kept)} FROM {table}{self._where(me)}) {alias}"
        if shape < 0.93:
            number = next(name for name in ("qty", "n", "score") if name in columns)
            return (
                Relation(alias, {"cust": INT, "top": columns[number], "many": INT}),
                f"(SELECT cust, MAX({number}) AS top, COUNT(*) AS many FROM {table} GROUP BY cust) {alias}",
            )
        return Relation(
            alias, {"cust": INT, "word": STR}
        ), f"(VALUES (1, 'a'), (2, 'b'), (NULL, 'c')) {alias}(cust, word)"

    def _on(self, relations: list[Relation], other: Relation) -> str:
        rng = self._rng
        kinds = [kind for kind in other.columns.values() if kind not in (TAGS, DBL)]
        kind = rng.choice([kind for kind in kinds if self._columns(relations, kind)] or [INT])
        mine = self._columns([other], kind, [*relations, other])
        theirs = self._columns(relations, kind, [*relations, other])
        if not mine or not theirs:
            return "1 = 1"
        on = f"{rng.choice(theirs)} {rng.choice(['=', '=', '=', '<=>'])} {rng.choice(mine)}"
        return f"{on} AND {self._condition([*relations, other])}" if rng.random() < 0.25 else on

    # --- conditions and values -----------------------------------------------------------------------------

    def _where(self, relations: list[Relation]) -> str:
        rng = self._rng
        shape = rng.random()
        if shape < 0.4:
            return ""
        if shape < 0.75:
            return f" WHERE {self._condition(relations)}"
        table = rng.choice(list(TABLES))
        inner = [Relation("q", COLUMNS[table])]
        number = self._value(relations, INT)
        if shape < 0.85:
            word = rng.choice(["IN", "IN", "NOT IN"])
            return f" WHERE {number} {word} (SELECT q.cust FROM {table} q WHERE {self._condition(inner)})"
        if shape < 0.95:
            word = rng.choice(["EXISTS", "NOT EXISTS"])
            mine = self._columns(relations, INT)
            on = f"q.cust = {rng.choice(mine)} AND " if mine else ""
            return f" WHERE {word} (SELECT 1 FROM {table} q WHERE {on}{self._condition(inner)})"
        return f" WHERE {number} >= (SELECT MIN(q.cust) FROM {table} q)"

    def _condition(self, relations: list[Relation], depth: int = 0) -> str:
        rng = self._rng
        kind = rng.choice([INT, INT, STR, DEC, DAY, TS])
        one = self._value(relations, kind, 1)
        choices: list[Callable[[], str]] = [
            lambda: f"{one} {rng.choice(['=', '<', '>=', '<>', '<=>'])} {self._value(relations, kind, 1)}",
            lambda: f"{one} IS {rng.choice(['', 'NOT '])}NULL",
            lambda: f"{self._value(relations, INT, 1)} IN (1, 2, {rng.randint(3, 9)})",
            lambda: f"{self._value(relations, INT, 1)} BETWEEN {rng.randint(0, 3)} AND {rng.randint(2, 9)}",
            lambda: f"{self._value(relations, STR, 1)} {rng.choice(['LIKE', 'NOT LIKE', 'RLIKE'])} 'a%'",
            lambda: f"NOT ({one} = {self._value(relations, kind, 1)})",
        ]
        if self._columns(relations, BOOL):
            choices.append(lambda: rng.choice(self._columns(relations, BOOL)))
        text = rng.choice(choices)()
        if depth < 1 and rng.random() < 0.3:
            return f"({text} {rng.choice(['AND', 'OR'])} {self._condition(relations, depth + 1)})"
        return text

    def _columns(
        self, relations: list[Relation], kind: str, among: list[Relation] | None = None
    ) -> list[str]:
        """References to columns of a kind, in the spellings that a user may choose."""
        names = [name for each in among or relations for name in each.columns]
        found = []
        for each in relations:
            for name, its in each.columns.items():
                if its == kind:
                    bare = not each.alias or (names.count(name) == 1 and self._rng.random() < 0.3)
                    spelt = name.upper() if self._rng.random() < 0.1 else name
                    found.append(spelt if bare else f"{each.alias}.{spelt}")
        return found

    def _value(self, relations: list[Relation], kind: str, depth: int = 0) -> str:
        columns = self._columns(relations, kind)
        if columns and (depth > 1 or self._rng.random() < 0.55):
            return self._rng.choice(columns)
        if depth > 1:
            return self._literal(kind)
        return self._expression(relations, kind, depth + 1)

    def _expression(self, relations: list[Relation], kind: str, depth: int) -> str:
        rng = self._rng

        def value(other: str) -> str:
            return self._value(relations, other, depth)

        unit = rng.choice(UNITS)
        every: list[Callable[[], str]] = [
            lambda: f"coalesce({value(kind)}, {self._literal(kind)})",
            lambda: (
                f"CASE WHEN {self._condition(relations, 1)} THEN {value(kind)} ELSE {self._literal(kind)} END"
            ),
            lambda: f"nullif({value(kind)}, {self._literal(kind)})",
            lambda: f"if({self._condition(relations, 1)}, {value(kind)}, NULL)",
        ]
        by_kind: dict[str, list[Callable[[], str]]] = {
            INT: [
                lambda: f"{value(INT)} + {rng.randint(1, 9)}",
                lambda: f"{value(INT)} % 3",
                lambda: f"abs({value(INT)} - 4)",
                lambda: f"length({value(STR)})",
                lambda: f"year({value(DAY)})",
                lambda: f"datediff({value(DAY)}, DATE '2024-01-31')",
                lambda: f"hour({value(TS)})",
                lambda: f"extract(MONTH FROM {value(TS)})",
                lambda: f"CAST({value(DEC)} AS INT)",
                lambda: f"greatest({value(INT)}, {value(INT)})",
            ],
            DEC: [
                lambda: f"{value(DEC)} + 1.25",
                lambda: f"round({value(DEC)}, 1)",
                lambda: f"CAST({value(INT)} AS DECIMAL(10,2))",
                lambda: f"-{value(DEC)}",
                lambda: f"CAST({value(DEC)} * 2 AS DECIMAL(12,2))",
            ],
            STR: [
                lambda: f"upper({value(STR)})",
                lambda: f"concat({value(STR)}, '-', {value(STR)})",
                lambda: f"{value(STR)} || CAST({value(INT)} AS STRING)",
                lambda: f"substr({value(STR)}, 1, 2)",
                lambda: f"date_format({value(DAY)}, 'yyyy-MM')",
                lambda: f"lpad({value(STR)}, 4, '.')",
                lambda: f"replace({value(STR)}, 'a', 'b')",
                lambda: f"regexp_replace({value(STR)}, '[aeiou]', '_')",
                lambda: f"CAST({value(DAY)} AS STRING)",
            ],
            DAY: [
                lambda: f"date_add({value(DAY)}, {rng.randint(-40, 40)})",
                lambda: f"{value(DAY)} + INTERVAL {rng.randint(1, 3)} {rng.choice(['DAY', 'MONTH', 'YEAR'])}",
                lambda: (
                    f"{value(DAY)} - INTERVAL '{rng.randint(1, 3)}' {rng.choice(['DAY', 'MONTH', 'YEAR'])}"
                ),
                lambda: f"add_months({value(DAY)}, {rng.randint(-3, 3)})",
                lambda: f"last_day({value(DAY)})",
                lambda: f"trunc({value(DAY)}, 'MM')",
                lambda: f"CAST({value(TS)} AS DATE)",
            ],
            TS: [
                lambda: f"{value(TS)} + INTERVAL {rng.randint(1, 90)} {unit}",
                lambda: f"{value(TS)} - INTERVAL '{rng.randint(1, 9)}' {unit}",
                lambda: (
                    f"date_trunc('{rng.choice(['MINUTE', 'HOUR', 'DAY', 'WEEK', 'MONTH'])}', {value(TS)})"
                ),
                lambda: f"CAST({value(DAY)} AS TIMESTAMP)",
            ],
            BOOL: [lambda: self._condition(relations, 1), lambda: f"NOT {value(BOOL)}"],
            DBL: [
                lambda: f"{value(DBL)} * 2",
                lambda: f"CAST({value(INT)} AS DOUBLE) / 4",
                lambda: f"sqrt(abs({value(INT)}))",
            ],
        }
        return rng.choice([*every, *by_kind[kind], *by_kind[kind]])()

    def _literal(self, kind: str) -> str:
        rng = self._rng
        return {
            INT: lambda: str(rng.randint(0, 9)),
            DEC: lambda: f"{rng.randint(0, 99)}.{rng.randint(10, 99)}",
            STR: lambda: rng.choice(["'a'", "'ab'", "''", "'é'"]),
            DAY: lambda: f"DATE '2024-0{rng.randint(1, 9)}-{rng.randint(10, 28)}'",
            TS: lambda: f"TIMESTAMP '2024-01-0{rng.randint(1, 9)} 1{rng.randint(0, 9)}:00:00'",
            BOOL: lambda: rng.choice(["true", "false"]),
            DBL: lambda: f"{rng.randint(0, 9)}e0",
        }[kind]()

    def _aggregate(self, relations: list[Relation], kind: str | None = None) -> str:
        rng = self._rng

        def value(*kinds: str) -> str:
            return self._value(relations, rng.choice(kinds), 1)

        counts = [
            lambda: "COUNT(*)",
            lambda: f"COUNT({value(INT, STR, DAY)})",
            lambda: f"COUNT(DISTINCT {value(INT, STR, TS)})",
            lambda: f"COUNT(*) FILTER (WHERE {self._condition(relations, 1)})",
            lambda: f"count_if({self._condition(relations, 1)})",
        ]
        if kind == INT:
            return rng.choice(counts)()
        others = [
            lambda: f"SUM({value(INT)})",
            lambda: f"SUM({value(DEC)})",
            lambda: f"SUM(DISTINCT {value(INT)})",
            lambda: f"AVG({value(INT, DEC, DBL)})",
            lambda: f"MIN({value(INT, DEC, STR, DAY, TS, DBL)})",
            lambda: f"MAX({value(INT, DEC, STR, DAY, TS, DBL)})",
            lambda: f"bool_or({self._condition(relations, 1)})",
            lambda: f"every({self._condition(relations, 1)})",
            lambda: f"stddev({value(INT)})",
            lambda: f"percentile({value(INT)}, 0.5)",
            lambda: f"median({value(INT)})",
            lambda: f"array_sort(collect_list({value(INT, STR)}))",
            lambda: f"array_sort(collect_set({value(INT, STR)}))",
            lambda: f"SUM({value(INT)}) FILTER (WHERE {self._condition(relations, 1)})",
            lambda: f"MAX({value(INT)}) - MIN({value(INT)})",
            lambda: f"COUNT(*) * 2 + {rng.randint(1, 3)}",
            lambda: f"bit_xor({value(INT)})",
        ]
        text = self._value(relations, STR, 1)
        others.append(lambda: f"listagg({text}, ',') WITHIN GROUP (ORDER BY {text})")
        number = self._value(relations, INT, 1)
        others.append(lambda: f"percentile_cont(0.25) WITHIN GROUP (ORDER BY {number})")
        others.append(lambda: f"approx_count_distinct({number})")
        return rng.choice([*counts, *others, *others])()

    def _as(self) -> str:
        return self._rng.choice([" AS ", " "])

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"


def _without(relation: Relation, names: list[str]) -> Relation:
    return Relation(
        relation.alias, {name: kind for name, kind in relation.columns.items() if name not in names}
    )


class Orders:
    """Rows of the three tables: first ones, and a change that inserts, updates and deletes in each."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._id = 0
        self._customers = 0

    def fill(self, database: Instance) -> None:
        """Bring the first rows."""
        database.table("orders").insert([self._order() for _ in range(12)])
        database.table("customers").insert([self._customer() for _ in range(5)])
        database.table("events").insert([self._event() for _ in range(8)])

    def change(self, database: Instance) -> None:
        """Change every table in each way; some changes undo others."""
        database.table("orders").insert([self._order() for _ in range(4)])
        database.sql("UPDATE orders SET qty = 7, note = NULL WHERE cust = 2")
        database.sql("DELETE FROM orders WHERE flag AND qty < 4")
        database.table("customers").insert([self._customer() for _ in range(2)])
        database.sql("DELETE FROM customers WHERE cust = 3")
        database.table("events").insert([self._event() for _ in range(3)])
        database.sql("DELETE FROM events WHERE n = 1")

    def empty(self, database: Instance) -> None:
        """Take all rows away."""
        for name in TABLES:
            database.sql(f"DELETE FROM {name}")

    def _order(self) -> dict[str, Any]:
        rng = self._rng
        self._id += 1
        return {
            "id": self._id,
            "cust": rng.choice([None, 1, 2, 3, 4, 5, 6]),
            "qty": rng.choice([None, 0, 1, 2, 3, 7]),
            "price": rng.choice([None, Decimal(rng.randint(-500, 9999)).scaleb(-2)]),
            "note": rng.choice(WORDS),
            "day": rng.choice([None, DAYS + timedelta(days=rng.randint(0, 400))]),
            "at": rng.choice([None, self._moment()]),
            "flag": rng.choice([True, False, None]),
        }

    def _customer(self) -> dict[str, Any]:
        rng = self._rng
        self._customers += 1
        return {
            "cust": self._customers,
            "name": rng.choice(WORDS),
            "city": rng.choice(WORDS),
            "since": rng.choice([None, DAYS + timedelta(days=rng.randint(0, 400))]),
            "score": rng.choice([None, 0.5, 2.25, -1.0]),
        }

    def _event(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "cust": rng.choice([None, 1, 2, 3, 9]),
            "kind": rng.choice(WORDS),
            "at": rng.choice([None, self._moment()]),
            "n": rng.choice([None, 1, 2, 3, 4]),
            "tags": rng.choice([None, [], ["a"], ["a", None, "b"], ["é", "é"]]),
        }

    def _moment(self) -> datetime:
        return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(
            seconds=self._rng.choice([0, 59, 60, 3600, 86399, 86400, 2678399]),
            microseconds=self._rng.choice([0, 1]),
        )
