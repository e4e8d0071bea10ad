"""Rows that a statement writes to a sink once, rather than for as long as a job runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.connectors.base import SinkContext
from velostream.disk.journal import Journal
from velostream.engine.opening.connect import declared_columns, open_sink, open_source
from velostream.engine.opening.sink import folded, shown
from velostream.engine.outputs.outputs import SinkOutput
from velostream.errors import SinkConfigError, SourceMissingError, SqlError
from velostream.model.changes import Commit
from velostream.model.options import key_of
from velostream.model.statements import SourceRef
from velostream.plan.query.own_key import own_key
from velostream.sql.names.usage import resolved

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from velostream.config import Settings
    from velostream.model.changes import BadRow
    from velostream.model.statements import InsertIntoSink, Query
    from velostream.plan.strategy import Known


def declared(statement: InsertIntoSink) -> pa.Schema | None:
    """The columns that the statement's property `schema` declares."""
    return declared_columns(_as_source(statement))


def discovered(statement: InsertIntoSink, settings: Settings, folder: Path) -> list[str]:
    """The names of the columns that the target has, for rows that have none."""
    try:
        source = open_source(
            _as_source(statement), settings, folder / "source", known=None, once=True, table=False
        )
        try:
            source.check()
            return list(source.discover().names)
        finally:
            source.close()
    except SourceMissingError as exc:
        raise SqlError(
            f"the columns of {statement.uri} are not known yet",
            detail=exc.message,
            hint=f"name them: INSERT INTO {statement.uri} (a, b) VALUES …",
            location=statement.location,
        ) from exc


def write_once(
    statement: InsertIntoSink, rows: pa.Table, known: Known, settings: Settings, folder: Path
) -> bool:
    """Write all rows, or none when one of them cannot be written; False when that was done before.

    `folder` holds the record of the write: given again after a crash, a sink that can tell whether the rows
    have arrived does not get them twice.
    """
    own = _row_key(statement.query, known)
    key = key_of(statement.properties, ()) or own
    context = SinkContext(
        state=folder,
        schema=shown(rows.schema),
        key=key,
        unique=bool(own) and folded(own) <= folded(key),
        job="insert",
        refuse=_refuse,
    )
    sink = open_sink(statement.uri, statement.properties, settings, context)
    try:
        output = SinkOutput(sink, Journal(folder / "journal", "insert sink"))
    except BaseException:
        sink.close()
        raise
    try:
        if output.offsets is not None:
            return False
        output.rows(rows, None, Commit("insert", 0, {}, datetime.now(UTC)))
    finally:
        output.close()
    return True


def _as_source(statement: InsertIntoSink) -> SourceRef:
    return SourceRef("target", statement.uri, statement.properties)


def _refuse(rows: list[BadRow]) -> None:
    if rows:
        raise SinkConfigError(f"{rows[0].source}: {rows[0].reason}", detail="no row was written")


def _row_key(query: Query, known: Known) -> tuple[str, ...]:
    """The key of the only table, or of the groups, where the result contains it."""
    if not isinstance(query.tree, exp.Select):
        return ()
    if query.tree.args.get("group") is not None:
        return _group_key(query.tree)
    if len(query.tables) != 1:
        return ()
    (name,) = query.tables
    return own_key(resolved(query, known.columns), name, known.keys.get(name, ()))


def _group_key(tree: exp.Select) -> tuple[str, ...]:
    """The columns that hold the expressions of GROUP BY; none unless it is all of them."""
    named = {item.unalias(): item.alias_or_name for item in reversed(tree.selects)}
    names = {name.casefold(): name for name in named.values() if name}
    found = []
    for part in tree.args["group"].expressions:
        if isinstance(part, exp.Literal) and part.is_int and int(part.this) <= len(tree.selects):
            found.append(tree.selects[int(part.this) - 1].alias_or_name)
        else:
            found.append(named.get(part) or names.get(part.name.casefold(), ""))
    return tuple(found) if all(found) else ()
