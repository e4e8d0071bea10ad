"""The query that a database is asked, as EXPLAIN prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from velostream.connectors.databases.options import DatabaseOptions
    from velostream.connectors.narrowing import Comparison, Narrowing


def asked_text(options: DatabaseOptions, narrowing: Narrowing) -> str:
    """Columns, conditions and limit of the statement are in it, as far as the types of the columns allow.

    Values are bound, and names quoted, when it is sent.
    """
    names = "*"
    if narrowing.columns is not None and options.poll_query is None:
        plain = sorted(name for name in narrowing.columns if not name.startswith("_"))
        names = ", ".join(plain) or "*"
    table = ".".join(filter(None, (options.database_schema, options.table)))
    text = f"SELECT {names} FROM {table or f'({options.query})'}"
    conditions = [f"({options.where})"] if options.where else []
    conditions += [_told(each) for each in narrowing.comparisons]
    if conditions:
        text += f" WHERE {' AND '.join(conditions)}"
    if options.order_by is not None:
        text += f" ORDER BY {options.order_by}"
    limits = [limit for limit in (options.limit, narrowing.most) if limit is not None]
    return f"{text} LIMIT {min(limits)}" if limits else text


def _told(comparison: Comparison) -> str:
    values = [f"'{value}'" if not isinstance(value, int) else str(value) for value in comparison.values]
    listed = f"({', '.join(values)})" if comparison.operator == "IN" else "".join(values)
    return f"{comparison.column} {comparison.operator} {listed}".rstrip()
