"""Statements are changed where they are written, and every other character stays as it was."""

from __future__ import annotations

import pytest

from refusals import refusal
from velostream.sql.text.edits import with_name, with_properties, with_table, written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE TABLE t AS SELECT 1 AS t", "CREATE TABLE u AS SELECT 1 AS t"),
        (
            "create or replace table if not exists `t` (t int)",
            "create or replace table if not exists u (t int)",
        ),
        ("CREATE MATERIALIZED VIEW t -- t\nAS SELECT 1", "CREATE MATERIALIZED VIEW u -- t\nAS SELECT 1"),
    ],
)
def test_the_name_that_is_created(text: str, expected: str) -> None:
    assert with_name(text, "u") == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a FROM t /* t */ WHERE a = 't'", "SELECT a FROM u /* t */ WHERE a = 't'"),
        ("SELECT t.a FROM T", "SELECT t.a FROM u AS T"),
        ("SELECT t.* FROM t", "SELECT t.* FROM u AS t"),
        ("SELECT x.a FROM t x JOIN t ON x.a = t.a", "SELECT x.a FROM u x JOIN u AS t ON x.a = t.a"),
        ("SELECT a FROM s WHERE a IN (SELECT a FROM t)", "SELECT a FROM s WHERE a IN (SELECT a FROM u)"),
        ("WITH t AS (SELECT * FROM s) SELECT * FROM t", "WITH t AS (SELECT * FROM s) SELECT * FROM t"),
        ("WITH q AS (SELECT * FROM t) SELECT * FROM q", "WITH q AS (SELECT * FROM u) SELECT * FROM q"),
        ("SELECT t FROM s AS t", "SELECT t FROM s AS t"),
        ("SELECT a FROM file:///t.csv t", "SELECT a FROM file:///t.csv t"),
        ("SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '5' MINUTE)",) * 2,
    ],
)
def test_the_tables_that_are_read(query: str, expected: str) -> None:
    expected = expected.replace("TABLE t,", "TABLE u,")
    assert with_table(f"CREATE TABLE d AS {query}", "t", "u") == f"CREATE TABLE d AS {expected}"


def test_names_are_quoted_where_they_have_to_be() -> None:
    assert [written(name) for name in ("u", "my table", "select", "a`b")] == [
        "u",
        "`my table`",
        "`select`",
        "`a``b`",
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM t", "SELECT * FROM t WITH ('on.error' = 'skip')"),
        ("SELECT * FROM t WITH ('key' = 'a')", "SELECT * FROM t WITH ('key' = 'a', 'on.error' = 'skip')"),
        ('SELECT * FROM t WITH ("on.error" = "fail")', "SELECT * FROM t WITH (\"on.error\" = 'skip')"),
        (
            "SELECT * FROM file:///a WITH ('file.debounce' = '1s') x WHERE a > 1",
            "SELECT * FROM file:///a WITH ('file.debounce' = '1s') x WHERE a > 1 WITH ('on.error' = 'skip')",
        ),
    ],
)
def test_properties(query: str, expected: str) -> None:
    text = with_properties(f"CREATE TABLE d AS {query}", {"on.error": "skip"})
    assert text == f"CREATE TABLE d AS {expected}"


def test_a_property_in_two_places_is_refused() -> None:
    one, other = "file:///a WITH ('x' = '1') a", "file:///b WITH ('x' = '2') b"
    text = f"CREATE TABLE d AS SELECT * FROM {one} JOIN {other} ON a.i = b.i"
    with refusal("sql", "x"):
        with_properties(text, {"x": "3"})
