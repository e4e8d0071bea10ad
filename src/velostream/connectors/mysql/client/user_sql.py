"""SQL that users write in properties, checked before it becomes part of a statement of ours.

A text that ends the expression or the query that it stands in, and begins another, is an error in one of two
statements: no text is a part of both and goes on with something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from velostream.connectors.databases.marks import percent_doubled, percent_marked, split_marks
from velostream.connectors.mysql.client.connections import run
from velostream.connectors.mysql.client.failures import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pymysql.connections import Connection


def condition(where: str) -> str:
    """A condition in parentheses, which a comment at its end leaves alone."""
    return f"({where}\n)"


def derived(query: str) -> str:
    """A query of the user's as what is selected from; its marks are those of the driver."""
    return f"({percent_marked(query)}\n) q"


def check_condition(connection: Connection, where: str, source: str, values: Sequence[Any] = ()) -> None:
    """Refuse a `where` that is not one condition on the rows of `source`, which is SQL for the driver."""
    written = condition(percent_doubled(where))
    with translated(f'"where" = "{where}" is no condition on the rows'):
        run(connection, f"SELECT 1 FROM {source} WHERE {written} LIMIT 0", list(values))
        run(connection, f"SELECT CASE WHEN {written} THEN 1 END FROM {source} LIMIT 0", list(values))


def check_order(connection: Connection, order: str, source: str, values: Sequence[Any] = ()) -> None:
    """Refuse an `order.by` that is not the order of the rows of `source`."""
    text = f"SELECT * FROM {source} ORDER BY {percent_doubled(order)}\n LIMIT 0"
    with translated(f'"order.by" = "{order}" is no order of the rows'):
        run(connection, text, list(values))
        run(connection, f"SELECT * FROM ({text}) q", list(values))


def check_query(connection: Connection, query: str, name: str) -> None:
    """Refuse what is not one query; `name` is the property that it is the value of. It is not run."""
    with translated(f'"{name}" is no query'):
        for text in (query.rstrip().rstrip(";"), f"SELECT * FROM ({'?'.join(split_marks(query))}\n) q"):
            run(connection, "PREPARE velostream FROM %s", (text,))
            run(connection, "DEALLOCATE PREPARE velostream")
