"""SQL that users write in properties, checked before it becomes part of a statement of ours.

The server parses it by itself, by the protocol that takes one statement only: what would end the expression
or the query that it stands in, and begin another, is an error there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import pq, sql
from psycopg.errors import error_from_result

from velostream.connectors.databases.marks import split_marks
from velostream.connectors.postgres.client.failures import translated
from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    import psycopg


def condition(where: str) -> sql.Composed:
    """A condition in parentheses, which a comment at its end leaves alone."""
    return sql.SQL("({}\n)").format(sql.SQL(where))


def check_condition(connection: psycopg.Connection, where: str, source: sql.Composable) -> None:
    """Refuse a `where` that is not one condition on the rows of a table or query."""
    with translated(f'"where" = "{where}" is no condition on the rows'):
        # No text ends both of these and goes on with something else.
        for text in ("SELECT FROM {} WHERE {}", "SELECT CASE WHEN {1} THEN 1 END FROM {0}"):
            _parsed(connection, sql.SQL(text).format(source, condition(where)))


def check_order(connection: psycopg.Connection, order: str, source: sql.Composable) -> None:
    """Refuse an `order.by` that is not the order of the rows of a table or query."""
    with translated(f'"order.by" = "{order}" is no order of the rows'):
        for text in ("SELECT FROM {} ORDER BY {}\n", "SELECT row_number() OVER (ORDER BY {1}\n) FROM {0}"):
            _parsed(connection, sql.SQL(text).format(source, sql.SQL(order)))


def derived(query: str) -> sql.Composed:
    """A query of the user's as what is selected from, to be parsed: its marks are numbered."""
    return sql.SQL("({}\n) q").format(sql.SQL(_numbered(query)))


def _numbered(query: str) -> str:
    return "".join(f"${number}{part}" if number else part for number, part in enumerate(split_marks(query)))


def described_query(connection: psycopg.Connection, query: str, name: str) -> list[tuple[str, int, int]]:
    """The columns of a query of the user's: name, number of the type, modifier. Anything else is refused.

    `name` is the property that it is the value of.
    """
    with translated(f'"{name}" is no query'):
        _parsed(connection, sql.SQL("{}").format(sql.SQL(_numbered(query))))
        result = _parsed(connection, sql.SQL("SELECT * FROM {}").format(derived(query)))
    if not result.nfields:
        raise SourceConfigError(f'"{name}" has no columns')
    fields = range(result.nfields)
    return [((result.fname(n) or b"").decode(), result.ftype(n), result.fmod(n)) for n in fields]


def _parsed(connection: psycopg.Connection, text: sql.Composed) -> pq.abc.PGresult:
    """What the server tells about a statement that it has parsed and not run."""
    raw = connection.pgconn
    for result in (raw.prepare(b"", text.as_bytes(connection)), described := raw.describe_prepared(b"")):
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise error_from_result(result)
    return described
