"""Windows over tables are ordinary SQL from the binder on, unless the statement asks for a watermark."""

from __future__ import annotations

import pytest

from velostream.connectors.registry import default_registry
from velostream.location import SourceText
from velostream.model.options import CommonOptions
from velostream.model.statements import CreateTable, EmitMode, Query, SelectStatement, WindowKind
from velostream.plan.planner import plan_query
from velostream.plan.plans import GroupsPlan
from velostream.plan.time.event_times import timed
from velostream.plan.time.windows import closing
from velostream.sql import EmptyCatalog, check_script, generate

SETUP = (
    "CREATE TABLE t (id INT PRIMARY KEY, k STRING, x INT, ts TIMESTAMP);"
    "CREATE SOURCE s (k STRING, x INT, ts TIMESTAMP) FROM datagen://trades;"
)
MINUTE = "TIMESTAMP_MICROS(UNIX_MICROS(ts) - PMOD(UNIX_MICROS(ts), CAST(60000000 AS BIGINT)))"


def checked(text: str) -> list[str]:
    found = check_script(SourceText(f"{SETUP} {text}"), EmptyCatalog(), default_registry())
    return [error.message for error in found.errors]


def bound(text: str) -> Query:
    found = check_script(SourceText(f"{SETUP} {text}"), EmptyCatalog(), default_registry())
    assert not found.errors, found.errors
    statement = found.statements[-1]
    assert isinstance(statement, CreateTable | SelectStatement)
    assert statement.query is not None
    return statement.query


def kept(select: str) -> Query:
    return bound(f"CREATE TABLE o AS {select}")


@pytest.mark.parametrize(
    "select",
    [
        "SELECT COUNT(*) AS n FROM t WINDOW TUMBLING(ts, 1m)",
        "SELECT COUNT(*) AS n, window_start FROM t WINDOW SLIDING(ts, 2m, 1m) PARTITION BY k",
        "SELECT COUNT(*) AS n, window_end FROM t WINDOW SESSION(ts, 1m) GROUP BY k",
        "SELECT SUM(x) AS n FROM t WINDOW ROWS(ts, 3) PARTITION BY k",
        "SELECT COUNT(*) AS n FROM t GROUP BY window(ts, '1 minute')",
        "SELECT COUNT(*) AS n, session_window.end AS e FROM t GROUP BY k, session_window(ts, '1 minute')",
        "SELECT TUMBLE_START(ts, INTERVAL '1' DAY) FROM t GROUP BY TUMBLE(ts, INTERVAL '1' DAY)",
        "SELECT n FROM (SELECT window, COUNT(*) AS n FROM t GROUP BY window(ts, '1 minute')) q",
    ],
)
def test_over_a_table_a_window_is_ordinary_sql_that_emits_changes(select: str) -> None:
    query = kept(select)
    assert query.window is None
    assert query.emit.mode is EmitMode.CHANGES
    # Written out and read again it is the same: nothing of ours is left in it.
    assert kept(query.tree.sql(dialect="spark")).tree == query.tree


@pytest.mark.parametrize(
    "asks",
    [
        "EMIT FINAL",
        'WITH ("late.rows" = "update")',
        'WITH ("grace" = "10s")',
        'WITH ("max_out_of_orderness_ms" = "1000")',
        'WITH ("event.time.column" = "ts")',
        'WITH ("window.close.timeout" = "10s")',
    ],
)
def test_a_statement_may_ask_for_a_watermark(asks: str) -> None:
    query = kept(f"SELECT COUNT(*) AS n FROM t WINDOW TUMBLING(ts, 1m) {asks}")
    assert query.window is not None
    assert query.window.kind is WindowKind.TUMBLING
    assert query.emit.mode is EmitMode.FINAL
    called = kept(f"SELECT COUNT(*) AS n FROM t GROUP BY window(ts, '1 minute') {asks}")
    assert "window(ts" in called.tree.sql(dialect="spark").lower()
    assert called.emit.mode is EmitMode.FINAL


def test_other_properties_ask_for_nothing() -> None:
    query = kept('SELECT COUNT(*) AS n FROM t WINDOW TUMBLING(ts, 1d) WITH ("time.zone" = "Europe/Berlin")')
    assert query.window is None
    assert "Europe/Berlin" in query.tree.sql(dialect="spark")


def test_an_answer_waits_for_nothing() -> None:
    assert bound("SELECT COUNT(*) FROM t WINDOW TUMBLING(ts, 1m) EMIT FINAL").window is None


def test_a_mix_follows_the_stream() -> None:
    query = kept("SELECT COUNT(*) AS n FROM s JOIN t ON s.k = t.k WINDOW TUMBLING(1m)")
    assert query.window is not None
    assert query.emit.mode is EmitMode.FINAL


@pytest.mark.parametrize(
    ("select", "key"),
    [
        (
            "window(ts, '1 minute').start AS w, COUNT(*) AS n FROM t GROUP BY window(ts, '1 minute').start",
            MINUTE,
        ),
        ("window(ts, '1 minute').start AS w, COUNT(*) AS n FROM t GROUP BY w", MINUTE),
        ("window(ts, '1 minute').start AS w, COUNT(*) AS n FROM t GROUP BY 1", MINUTE),
        ("window(ts, '1 minute').start AS w, COUNT(*) AS n FROM t GROUP BY ALL", MINUTE),
        (
            "date_trunc('hour', window(ts, '1 minute').start) AS w, COUNT(*) AS n FROM t GROUP BY w",
            f"DATE_TRUNC('hour', {MINUTE})",
        ),
    ],
)
def test_a_window_is_found_wherever_groups_name_it(select: str, key: str) -> None:
    group = kept(f"SELECT {select}").tree.args["group"]
    assert [each.sql(dialect="spark") for each in group.expressions] == [key]


def test_a_column_of_the_input_goes_before_a_result_of_that_name() -> None:
    tree = kept("SELECT max(window(ts, '1 minute').start) AS k, COUNT(*) AS n FROM t GROUP BY k").tree
    assert [each.sql(dialect="spark") for each in tree.args["group"].expressions] == ["k"]


def test_over_a_source_a_bound_is_a_window_and_what_is_coarser_is_not() -> None:
    final = kept("SELECT window(ts, '1 minute').start AS w, COUNT(*) AS n FROM s GROUP BY w")
    assert final.emit.mode is EmitMode.FINAL
    hour = kept(
        "SELECT date_trunc('hour', window(ts, '1 minute').start) AS w, COUNT(*) AS n FROM s GROUP BY w"
    )
    assert hour.emit.mode is EmitMode.CHANGES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT COUNT(*) FROM t WINDOW TUMBLING(1m)", "a WINDOW over a table has to name the column"),
        ("SELECT COUNT(*) FROM t WINDOW ROWS 2", "a WINDOW over a table has to name the column"),
        ("SELECT TUMBLE_START(ts, INTERVAL '1' DAY) FROM t", "TUMBLE_START belongs to a window"),
        ("SELECT HOP(ts, INTERVAL '1' DAY, INTERVAL '2' DAY) FROM t", "HOP belongs to a window"),
        ("SELECT 1 FROM t WHERE window_start > ts WINDOW SESSION(ts, 1m) GROUP BY k", "WHERE cannot look at"),
    ],
)
def test_what_is_missing_is_told(text: str, message: str) -> None:
    (found,) = checked(text)
    assert found.startswith(message)


def test_the_text_of_a_statement_with_a_window_of_rows_names_its_time() -> None:
    found = check_script(
        SourceText(f"{SETUP} SELECT SUM(x) FROM s WINDOW ROWS(ts, 3) PARTITION BY k"),
        EmptyCatalog(),
        default_registry(),
    )
    assert "WINDOW ROWS(`ts`, 3) PARTITION BY k" in generate(found.statements[-1])


# --- window functions in FROM ------------------------------------------------------------------------------


def test_over_a_table_a_window_function_is_a_subquery() -> None:
    tree = kept("SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))").tree
    inner = tree.args["from_"].this.this
    assert [item.sql(dialect="spark") for item in inner.selects[:2]] == ["*", f"{MINUTE} AS window_start"]
    assert [item.alias for item in inner.selects[2:]] == ["window_end", "window_time"]


@pytest.mark.parametrize(
    ("function", "others"),
    [
        (
            "TUMBLE(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => 1m)",
            "TUMBLE(t, ts, INTERVAL '1' MINUTE)",
        ),
        ("HOP(t, ts, SIZE => 2m, SLIDE => 1m)", "HOP(TABLE t, DESCRIPTOR(ts), 1m, 2m)"),
        (
            "CUMULATE(TABLE t, DESCRIPTOR(ts), 1m, 3m, OFFSET => 0s)",
            "CUMULATE(t, ts, SIZE => 3m, STEP => 1m)",
        ),
        (
            "SESSION(t PARTITION BY k, ts, 1m)",
            "SESSION(DATA => t PARTITION BY (k), TIMECOL => ts, GAP => 1m)",
        ),
    ],
)
def test_arguments_have_names(function: str, others: str) -> None:
    assert kept(f"SELECT * FROM {function}").tree == kept(f"SELECT * FROM TABLE({others})").tree


def test_grouped_over_a_source_a_window_function_is_a_window_that_closes() -> None:
    select = "SELECT w.k, COUNT(*) AS n, window_time FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), 1m, 2m, 10s)) w"
    query = kept(f"{select} GROUP BY w.k, w.window_start, window_end, window_time")
    assert query.window is not None
    assert (query.window.kind, query.window.time_column) == (WindowKind.SLIDING, "ts")
    assert query.emit.mode is EmitMode.FINAL
    assert query.sources[0].properties["event.time.column"] == "ts"
    # Without the bounds among its groups it is a relation like any other.
    plain = kept("SELECT k, COUNT(*) AS n FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), 1m, 2m)) GROUP BY k")
    assert plain.window is None
    assert plain.emit.mode is EmitMode.CHANGES


def test_the_bounds_are_the_last_keys_also_under_other_names() -> None:
    query = kept(
        "SELECT window_start AS ws, window_end AS we, k FROM s WINDOW TUMBLING(1m) GROUP BY we, ws, k"
    )
    windows, timing = timed(query, CommonOptions())
    plan = closing(plan_query(windows), timing.windowing, windows)
    assert isinstance(plan, GroupsPlan)
    assert plan.keys == ("k", "ws", "we")
    assert plan.windowing is not None
    assert (plan.windowing.start, plan.windowing.end) == ("ws", "we")


def test_a_filtered_and_projected_source_has_windows_too() -> None:
    query = bound(
        "CREATE VIEW v AS SELECT k AS who, x + 1 AS y, ts AS at FROM s WHERE x > 0; "
        "CREATE TABLE o AS SELECT who, SUM(y) AS n FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(at), 1m)) "
        "GROUP BY who, window_start, window_end"
    )
    assert query.window is not None
    assert query.window.time_column == "ts"
    assert query.tree.sql(dialect="spark").startswith(
        "SELECT s.k AS who, SUM((s.x + 1)) AS n FROM __source_1 AS s"
    )


def test_the_watermark_that_a_statement_asks_for_applies_to_window_functions_over_tables() -> None:
    select = "SELECT COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), 1m)) GROUP BY window_start"
    assert kept(select).window is None
    asked = kept(f'{select} WITH ("late.rows" = "drop")')
    assert asked.window is not None
    assert asked.window.time_column == "ts"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("TUMBLE(TABLE t, DESCRIPTOR(nope), 1m)", 'unknown column "nope"'),
        ("TUMBLE(TABLE t, 1m)", "the window has to name the column that holds the time"),
        ("TUMBLE(TABLE t, DESCRIPTOR(ts))", "tumbling window needs its size"),
        ("TUMBLE(TABLE t, DESCRIPTOR(ts), SLIDE => 1m)", 'unknown argument "SLIDE"'),
        ("TUMBLE(TABLE t, DESCRIPTOR(ts), 1m, 2m, 3m)", "an argument too many"),
        ("TUMBLE(SIZE => 1m, TABLE t)", "expected a name and =>"),
        ("TUMBLE(TABLE t, DESCRIPTOR(ts), SIZE => 1m, SIZE => 2m)", "SIZE is given twice"),
        ("HOP(TABLE t, DESCRIPTOR(ts), 2m, 1m)", "advance of a sliding window cannot be longer"),
        ("CUMULATE(TABLE t, DESCRIPTOR(ts), 2m, 3m)", "the size of cumulating windows is a whole"),
        ("SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), 1m)", "SESSION over a source is executed where"),
    ],
)
def test_what_is_wrong_with_a_window_function_is_told(function: str, message: str) -> None:
    (found,) = checked(f"SELECT * FROM TABLE({function})")
    assert found.startswith(message)
