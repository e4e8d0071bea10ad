"""Errors of drivers by their class and words: what is tried again, and what a person has to change."""

from __future__ import annotations

import sqlite3

import duckdb
import psycopg
import pymysql
import pytest

from velostream.connectors.any_sql.drivers.spark_reader import JdbcError
from velostream.connectors.any_sql.failures import error_of


@pytest.mark.parametrize(
    ("exc", "code"),
    [
        (sqlite3.OperationalError("no such table: orders"), "source.missing"),
        (sqlite3.OperationalError("no such column: x"), "source.config"),
        (sqlite3.OperationalError("database is locked"), "source.network"),
        (sqlite3.OperationalError("interrupted"), "source.network"),
        (sqlite3.DatabaseError("not authorized"), "source.auth"),
        (duckdb.CatalogException("Table with name orders does not exist!"), "source.missing"),
        (duckdb.IOException("Could not set lock on file"), "source.network"),
        (duckdb.InterruptException("INTERRUPT Error: Interrupted!"), "source.network"),
        (
            duckdb.ConnectionException(
                "Can't open a connection to same database file with a different configuration"
            ),
            "source.network",
        ),
        (duckdb.ConversionException("Could not convert string 'x' to INT32"), "source.data"),
        (duckdb.ParserException("syntax error"), "source.config"),
        (psycopg.errors.UndefinedTable('relation "orders" does not exist'), "source.missing"),
        (psycopg.errors.UndefinedColumn('column "x" of table "t" does not exist'), "source.config"),
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), "source.network"),
        (psycopg.errors.InsufficientPrivilege("permission denied for table t"), "source.auth"),
        (psycopg.OperationalError("SSL error: certificate verify failed"), "source.config"),
        (psycopg.OperationalError("connection refused"), "source.network"),
        (pymysql.err.OperationalError(1045, "Access denied for user 'u'"), "source.auth"),
        (pymysql.err.ProgrammingError(1146, "Table 'shop.orders' doesn't exist"), "source.missing"),
        (pymysql.err.OperationalError(2013, "Lost connection to MySQL server"), "source.network"),
        (
            pymysql.err.OperationalError(1969, "Query was interrupted (max_statement_time exceeded)"),
            "source.network",
        ),
        (
            pymysql.err.OperationalError(3024, "Query execution was interrupted, maximum time exceeded"),
            "source.network",
        ),
        (JdbcError('ERROR: relation "nowhere" does not exist'), "source.missing"),
        (JdbcError('FATAL: password authentication failed for user "u"'), "source.auth"),
        (JdbcError("The connection attempt failed."), "source.network"),
        (JdbcError("ERROR: cannot execute DROP TABLE in a read-only transaction"), "source.config"),
        (ConnectionResetError("reset by peer"), "source.network"),
    ],
    ids=lambda given: f"{type(given).__module__}: {given}" if isinstance(given, Exception) else given,
)
def test_drivers(exc: Exception, code: str) -> None:
    assert error_of(exc, "cannot read").code == code
