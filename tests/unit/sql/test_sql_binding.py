"""What bound statements hold: relations, properties, parameters, columns used, and their order."""

from __future__ import annotations

from datetime import timedelta

import pytest

from refusals import check_refusal, refusal
from velostream.connectors.registry import Registry
from velostream.errors import (
    SqlError,
    UnsafeError,
)
from velostream.location import SourceText
from velostream.model import statements as model
from velostream.sql import (
    Checked,
    EmptyCatalog,
    Relation,
    RelationKind,
    bind_one,
    check_script,
    column_usage,
    dependency_order,
    parameters_of,
    parse_columns,
)

REGISTRY = Registry()


class Tables:
    """A catalogue of tables by hand."""

    def __init__(self, **columns: str | None) -> None:
        self.columns = columns

    def lookup(self, name: str) -> Relation | None:
        if name not in self.columns:
            return None
        text = self.columns[name]
        return Relation(RelationKind.TABLE, name, parse_columns(text) if text else None, by_hand=True)

    def names(self) -> tuple[str, ...]:
        return tuple(self.columns)


def check(text: str, catalog: Tables | EmptyCatalog | None = None, **options: object) -> Checked:
    return check_script(SourceText(text), catalog or EmptyCatalog(), REGISTRY, environment={}, **options)  # type: ignore[arg-type]


def last(text: str, catalog: Tables | None = None) -> model.Statement:
    checked = check(text, catalog)
    assert [str(error) for error in checked.errors] == []
    return checked.statements[-1]


def query_of(text: str, catalog: Tables | None = None) -> model.Query:
    query = getattr(last(text, catalog), "query", None)
    assert isinstance(query, model.Query)
    return query


# --- relations ------------------------------------------------------------------------------------


def test_sources_are_numbered_as_they_stand_in_the_text() -> None:
    query = query_of(
        "SELECT a.x, (SELECT max(y) FROM kafka://third) AS m FROM kafka://first a, file:///second.csv b"
    )
    assert [(source.id, source.uri.text, source.alias) for source in query.sources] == [
        ("__source_1", "kafka://third", "third"),
        ("__source_2", "kafka://first", "a"),
        ("__source_3", "file:///second.csv", "b"),
    ]
    assert query.tree.sql("spark") == (
        "SELECT a.x, (SELECT MAX(y) FROM __source_1 AS third) AS m "
        "FROM __source_2 AS a CROSS JOIN __source_3 AS b"
    )
    assert query.continuous


def test_a_source_by_name_keeps_its_columns_and_says_where_it_was_declared() -> None:
    query = query_of(
        "CREATE SOURCE o (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) FROM kafka://orders;"
        "SELECT o.id FROM o"
    )
    (source,) = query.sources
    assert source.declared_in == "o"
    assert [column.name for column in source.columns] == ["id", "ts"]
    assert source.watermark == model.Watermark("ts", timedelta(seconds=5))
    assert query.tree.sql("spark") == "SELECT o.id FROM __source_1 AS o"


def test_views_are_expanded_and_their_sources_renumbered() -> None:
    query = query_of(
        "CREATE VIEW v AS SELECT a FROM kafka://x WHERE a > 1; CREATE VIEW w AS SELECT a FROM v;"
        "SELECT y.b, w.a FROM kafka://y JOIN w ON y.b = w.a"
    )
    assert query.tree.sql("spark") == (
        "SELECT y.b, w.a FROM __source_1 AS y "
        "JOIN (SELECT a FROM (SELECT a FROM __source_2 AS x WHERE a > 1) AS v) AS w ON y.b = w.a"
    )
    assert [source.uri.text for source in query.sources] == ["kafka://y", "kafka://x"]
    assert query.views == ("w",)


def test_a_cte_hides_a_table_only_where_it_is_visible() -> None:
    query = query_of("WITH t AS (SELECT id FROM t) SELECT id FROM t", Tables(t="id int"))
    assert query.tables == ("t",)
    with refusal("sql.unknown_name", "c", at="c"):
        bind_one("SELECT * FROM (WITH c AS (SELECT 1 AS a) SELECT * FROM c) x JOIN c ON true")


def test_names_compare_without_case_and_become_the_catalogues() -> None:
    query = query_of("SELECT ID FROM TRADES", Tables(Trades="id int"))
    assert query.tables == ("Trades",)
    assert "FROM Trades" in query.tree.sql("spark")


def test_streams_tables_and_sources_are_kept_apart() -> None:
    query = query_of(
        "CREATE STREAM s AS SELECT a FROM kafka://x; CREATE TABLE t (a INT);"
        "SELECT s.a FROM s JOIN t ON s.a = t.a JOIN kafka://z ON z.a = s.a"
    )
    assert (query.streams, query.tables, len(query.sources)) == (("s",), ("t",), 1)


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("kafka://a-b_c.d", "kafka://a-b_c.d"),
        ("s3://b/p--q/*.{csv,json}", "s3://b/p--q/*.{csv,json}"),
        (
            "postgresql://h/d?query=\"SELECT ';)', * FROM t\"",
            "postgresql://h/d?query=\"SELECT ';)', * FROM t\"",
        ),
        ("'kafka://a,b'", "kafka://a,b"),
        ("kafka_topic('x')", "kafka://x"),
        ("file('/data/x.csv')", "file:///data/x.csv"),
        ("mysql://h/d?table=t&where='a=1'", "mysql://h/d?table=t&where='a=1'"),
    ],
)
def test_forms_of_from(text: str, uri: str) -> None:
    for around in (
        "SELECT * FROM {}",
        "SELECT * FROM (SELECT * FROM {}) q",
        "SELECT 1 FROM {} x, kafka://other y",
    ):
        query = query_of(around.format(text) + " -- end")
        assert query.sources[0].uri.text == uri


# --- properties -----------------------------------------------------------------------------------


def test_properties_at_the_end_are_the_statements_and_its_only_sources() -> None:
    statement = last('CREATE TABLE t AS SELECT * FROM kafka://x WITH ("retention" = "1d", "group.id" = "g")')
    assert isinstance(statement, model.CreateTable)
    assert statement.query is not None
    assert statement.properties == {"retention": "1d"}
    assert statement.query.sources[0].properties == {"topic": "x", "retention": "1d", "group.id": "g"}


def test_the_statement_outranks_the_uri_which_outranks_create_source() -> None:
    source = (
        'CREATE SOURCE s FROM postgresql://h/d?table=a&batch.size=2 WITH ("batch.size" = "1", "where" = "x");'
    )
    (found,) = query_of(f'{source} SELECT * FROM s WITH ("where" = "y")').sources
    assert found.properties["batch.size"] == "2"
    assert found.properties["where"] == "y"
    assert found.properties["table"] == "a"


def test_with_several_sources_an_alias_addresses_one() -> None:
    query = query_of(
        'SELECT a.k FROM kafka://x a JOIN kafka://y b ON a.k = b.k WITH ("a.group.id" = "g", "grace" = "1s")'
    )
    assert query.sources[0].properties == {"topic": "x", "group.id": "g"}
    assert query.sources[1].properties == {"topic": "y"}


def test_secrets_stay_references_and_are_not_checked_as_values() -> None:
    statement = last(
        'SELECT * FROM postgresql://h/d?table=t WITH ("port" = "${env:PORT}", "password" = "${file:/p}")'
    )
    assert isinstance(statement, model.SelectStatement)
    assert statement.query.sources[0].properties["port"] == "${env:PORT}"


def test_the_value_of_a_variable_is_not_in_the_remembered_text() -> None:
    checked = check_script(
        SourceText('SELECT * FROM postgresql://h/d?table=t WITH ("password" = "${SECRET}")'),
        EmptyCatalog(),
        REGISTRY,
        environment={"SECRET": "hunter2\" , 'x"},
    )
    (statement,) = checked.statements
    assert isinstance(statement, model.SelectStatement)
    assert "hunter2" not in statement.text
    assert statement.query.sources[0].properties["password"] == "hunter2\" , 'x"


def test_places_lead_back_over_variables_of_any_length() -> None:
    checked = check_script(
        SourceText("SELECT ${A}, ${B:a default}\n, nope FROM users"),
        Tables(users="id int"),
        REGISTRY,
        environment={"A": "1 + 2 + 3 + 4 + 5", "B": "6"},
    )
    (error,) = checked.errors
    assert error.location is not None
    assert (error.location.line, error.location.column, error.location.text) == (2, 3, "nope")


# --- windows and emission -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("TUMBLING(5m)", model.WindowSpec(model.WindowKind.TUMBLING, size=timedelta(minutes=5))),
        (
            "TUMBLING(ts, INTERVAL '90' SECOND)",
            model.WindowSpec(model.WindowKind.TUMBLING, size=timedelta(seconds=90), time_column="ts"),
        ),
        (
            "SLIDING EVERY 2 MINUTES SIZE 10 MINUTES",
            model.WindowSpec(
                model.WindowKind.SLIDING, size=timedelta(minutes=10), advance=timedelta(minutes=2)
            ),
        ),
        ("SESSION(500ms)", model.WindowSpec(model.WindowKind.SESSION, gap=timedelta(milliseconds=500))),
        ("ROWS 100", model.WindowSpec(model.WindowKind.ROWS, rows=100)),
    ],
)
def test_window_forms(clause: str, expected: model.WindowSpec) -> None:
    query = query_of(f"SELECT count(*) FROM kafka://x WINDOW {clause}")
    assert query.window is not None
    assert (
        query.window.kind,
        query.window.size,
        query.window.advance,
        query.window.gap,
        query.window.rows,
    ) == (
        expected.kind,
        expected.size,
        expected.advance,
        expected.gap,
        expected.rows,
    )
    assert query.window.time_column == expected.time_column


@pytest.mark.parametrize(
    ("tail", "emit"),
    [
        ("", model.Emit(model.EmitMode.CHANGES)),
        ("WINDOW TUMBLING(1m)", model.Emit(model.EmitMode.FINAL)),
        ("WINDOW ROWS 10", model.Emit(model.EmitMode.CHANGES)),
        ("EMIT FINAL", model.Emit(model.EmitMode.FINAL, explicit=True)),
        ("GROUP BY window(ts, '1 minute')", model.Emit(model.EmitMode.FINAL)),
        (
            "emit changes every 5 seconds",
            model.Emit(model.EmitMode.CHANGES, timedelta(seconds=5), explicit=True),
        ),
    ],
)
def test_emission(tail: str, emit: model.Emit) -> None:
    assert query_of(f"SELECT count(*) FROM kafka://x {tail}").emit == emit


def test_rows_window_buffer_is_a_frame_of_so_many_rows() -> None:
    text = query_of(
        "SELECT avg(p) OVER (ROWS WINDOW BUFFER 3 ROWS PARTITION BY s ORDER BY t) FROM kafka://x"
    ).tree
    assert "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW" in text.sql("spark")


# --- parameters, UDFs, use of columns -------------------------------------------------------------


def test_parameters_are_named_in_the_order_of_the_text() -> None:
    assert parameters_of(last("SELECT :a, :b, :a WHERE :c > 1 LIMIT :d")) == ("a", "b", "c", "d")
    assert parameters_of(last("SELECT ? WHERE ? > 1 LIMIT ?")) == ("1", "2", "3")
    assert parameters_of(last("INSERT INTO t VALUES (?, ?)", Tables(t="a int, b int"))) == ("1", "2")


def test_values_for_parameters_must_fit() -> None:
    tables = Tables(t="a int")
    assert not check("SELECT * FROM t WHERE a = :x", tables, params={"x": 1}).errors
    (missing,) = check("SELECT * FROM t WHERE a = ? OR a = ?", tables, params=[1]).errors
    check_refusal(missing, "sql", "number 2")
    (spare,) = check("SELECT * FROM t", tables, params={"x": 1}).errors
    check_refusal(spare, "sql", "x")


def test_udfs_are_known_by_name_and_recorded() -> None:
    checked = check("SELECT My_Func(a), upper(a) FROM kafka://x", udfs=["my_func"])
    assert not checked.errors
    query = getattr(checked.statements[0], "query", None)
    assert isinstance(query, model.Query)
    assert query.udfs == ("my_func",)


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("SELECT a, upper(b) FROM kafka://x WHERE c > 1 ORDER BY d", {"a", "b", "c", "d"}),
        ("SELECT * FROM kafka://x", None),
        ("SELECT count(*) FROM kafka://x", set()),
        ("SELECT x.* FROM kafka://x", None),
        ("SELECT count(a), _offset FROM kafka://x GROUP BY b, _offset", {"a", "b", "_offset"}),
        ("SELECT q.a FROM (SELECT a, b FROM kafka://x) q", {"a", "b"}),
        ("SELECT transform(a, e -> e + b) FROM kafka://x", {"a", "b"}),
        ("SELECT s.field.deeper FROM kafka://x", {"s"}),
        ("SELECT 1 WHERE EXISTS (SELECT 1 FROM kafka://x WHERE k = 1)", {"k"}),
        ("SELECT sum(v) FROM kafka://x WINDOW TUMBLING(ts, 5m) PARTITION BY k", {"v", "ts", "k"}),
        ("WITH c AS (SELECT a FROM kafka://x) SELECT a FROM c", {"a"}),
        ("SELECT hash(*) FROM kafka://x", None),
        ("SELECT a AS z, z + 1 AS y FROM kafka://x", {"a"}),
    ],
)
def test_columns_used(text: str, used: set[str] | None) -> None:
    found = column_usage(query_of(text))["__source_1"]
    assert (None if found is None else set(found)) == used


def test_columns_used_by_a_join_follow_their_qualifiers() -> None:
    query = query_of("SELECT a.x, b.y, z FROM kafka://one a JOIN kafka://two b USING (k)")
    assert column_usage(query) == {"__source_1": {"x", "k", "z"}, "__source_2": {"y", "k", "z"}}
    told = column_usage(query, {"__source_1": ["x", "k"], "__source_2": ["y", "k", "z"]})
    assert told == {"__source_1": {"x", "k"}, "__source_2": {"y", "k", "z"}}


def test_a_star_uses_every_column_whatever_is_named_beside_it() -> None:
    query = query_of("SELECT *, _offset FROM kafka://x WHERE _timestamp > now()")
    assert column_usage(query) == {"__source_1": None}


# --- scripts --------------------------------------------------------------------------------------


def test_statements_start_after_what_they_use() -> None:
    checked = check(
        "SELECT * FROM c; CREATE TABLE c AS SELECT * FROM b; INSERT INTO h VALUES (1);"
        "CREATE VIEW b AS SELECT * FROM a;"
        "CREATE SOURCE a FROM kafka://a; UPDATE h SET x = 2; CREATE TABLE h (x INT)"
    )
    assert not checked.errors
    assert [type(statement).__name__ for statement in dependency_order(checked.statements)] == [
        "CreateSource",
        "CreateView",
        "CreateTable",
        "SelectStatement",
        "CreateTable",
        "InsertInto",
        "Update",
    ]


def test_a_name_dropped_and_created_again_keeps_the_files_order() -> None:
    tables = Tables(t="a int")
    checked = check("INSERT INTO t VALUES (1); DROP TABLE t; CREATE TABLE t (a INT)", tables)
    assert not checked.errors
    order = [type(statement).__name__ for statement in dependency_order(checked.statements)]
    assert order == ["InsertInto", "Drop", "CreateTable"]


def test_a_circle_is_named() -> None:
    a, b = (
        last(f"CREATE TABLE {name} AS SELECT * FROM {other}", Tables(a=None, b=None))
        for name, other in ("ab", "ba")
    )
    with refusal("sql.cycle", "a → b → a"):
        dependency_order([a, b])


def test_a_broken_statement_does_not_make_its_users_wrong() -> None:
    checked = check(
        "CREATE TABLE a AS SELECT nope FROM users; SELECT anything FROM a", Tables(users="id int")
    )
    (error,) = checked.errors
    check_refusal(error, "sql.unknown_name", "nope", at="nope")
    assert len(checked.statements) == 1


def test_errors_come_in_the_order_of_the_file_whatever_binds_first() -> None:
    checked = check(
        "SELECT x FROM second; SELEC 1; CREATE TABLE second AS SELECT y FROM users", Tables(users="id int")
    )
    lines = [error.location.start for error in checked.errors if error.location]
    assert lines == sorted(lines)
    assert len(checked.errors) == 2


def test_texts_without_statements() -> None:
    for text in ("", ";", " ;; -- nothing\n;", "/* a /* nested */ comment */"):
        assert check(text) == Checked((), ())


def test_bind_one_raises_the_first_error() -> None:
    with refusal("sql.syntax", 2):
        bind_one("SELECT 1; SELECT 2")
    with pytest.raises(UnsafeError):
        bind_one("SELECT reflect('a', 'b')")
    with pytest.raises(SqlError):
        bind_one("SELECT " + "(" * 3000)


def test_a_column_in_double_quotes_is_warned_of() -> None:
    declared = "CREATE TABLE orders (id INT PRIMARY KEY, user_id STRING, Amount DECIMAL(10, 2));\n"
    told = {
        'CREATE VIEW v AS SELECT id, "user_id" AS u FROM orders': ['2:29: "user_id"'],
        "SELECT id FROM orders WHERE \"user_id\" = 'x' AND \"amount\" <> 'amount'": [
            '2:29: "user_id"',
            '2:49: "amount"',
        ],
        "DELETE FROM orders WHERE \"user_id\" = 'x'": ['2:26: "user_id"'],
        'SELECT id FROM orders WHERE user_id = "x"': [],
        'CREATE TABLE t AS SELECT id, user_id FROM orders WITH ("key" = "user_id")': [],
        'INSERT INTO orders VALUES (1, "user_id", 2)': [],
    }
    for text, places in told.items():
        checked = check_script(SourceText(declared + text, "a.sql"), EmptyCatalog(), REGISTRY)
        assert not checked.errors
        found = checked.statements[1].warnings
        assert [warning.split(" in double")[0] for warning in found] == [f"a.sql:{place}" for place in places]
