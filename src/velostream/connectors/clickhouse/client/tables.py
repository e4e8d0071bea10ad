"""What ClickHouse says about a table: its engine, its sorting key, and how it merges rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.connectors.clickhouse.client.types import Column, column_of, parsed, quoted
from velostream.errors import SourceMissingError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from velostream.connectors.clickhouse.client.connections import Client

OWN = "_velostream_"
"""Columns of our own that keep track of versions; they are not read."""
_TABLE = """
SELECT engine, engine_full, sorting_key, toString(uuid), create_table_query FROM system.tables
WHERE database = {database:String} AND name = {name:String}
"""
_NEAR = "SELECT name FROM system.tables WHERE database = {database:String} ORDER BY name"
_MERGING = ("Replacing", "Collapsing", "Summing", "Aggregating", "Coalescing", "Graphite")
_TARGET = re.compile(r"^CREATE MATERIALIZED VIEW \S+(?: \([^)]*\))? TO (\S+)")
_WINDOW = re.compile(r"\bnon_replicated_deduplication_window = (\d+)")


@dataclass(frozen=True)
class Table:
    """A table, view or materialized view."""

    database: str
    name: str
    engine: str
    arguments: tuple[str, ...]
    """The arguments of the engine, such as the column of versions; without the path of a replica."""
    sorting_key: tuple[str, ...]
    """The columns, or expressions, that rows are sorted by."""
    window: int
    """How many inserts a table of one server remembers, to recognise one that comes again."""

    @property
    def identifier(self) -> str:
        """Its quoted name."""
        return f"{quoted(self.database)}.{quoted(self.name)}"

    @property
    def merges_rows(self) -> bool:
        """Whether merges in the background replace rows, so that only FINAL shows what is meant."""
        return self.engine.endswith("MergeTree") and any(word in self.engine for word in _MERGING)

    @property
    def replaces(self) -> bool:
        """Whether a later row replaces the earlier one of the same sorting key."""
        return self.engine.endswith("ReplacingMergeTree")

    @property
    def replicated(self) -> bool:
        """Whether several servers hold it."""
        return self.engine.startswith(("Replicated", "Shared"))

    @property
    def recognises_inserts(self) -> bool:
        """Whether an insert that comes again with the same token is not taken twice."""
        return self.replicated or (self.engine.endswith("MergeTree") and self.window > 0)

    def __str__(self) -> str:
        return f'table "{self.database}.{self.name}"'


def table_of(client: Client, schema: str | None, name: str) -> Table:
    """What the catalogue says about a table; SourceMissingError with the nearest name otherwise."""
    if schema is None and "." in name:
        schema, name = name.split(".", 1)
    database = schema or client.database
    try:
        found = client.rows(_TABLE, {"database": database, "name": name})
    except SourceMissingError as exc:
        raise SourceMissingError(exc.message, hint="create it, or name another", detail=exc.detail) from exc
    if not found:
        near = [str(row[0]) for row in client.rows(_NEAR, {"database": database})]
        raise SourceMissingError(
            f'table "{name}" does not exist in database "{database}"',
            hint=did_you_mean(name, near) or f"there are: {', '.join(near[:20]) or 'none'}",
        )
    engine, full, sorting, uuid, made = found[0]
    if engine == "MaterializedView":
        # Its rows are in another table, and merged as that one says.
        target = _TARGET.match(made)
        inner = target[1].replace("`", "") if target else f"{database}..inner_id.{uuid}"
        holds = client.rows(_TABLE, dict(zip(("database", "name"), inner.split(".", 1), strict=True)))
        engine, full, sorting = holds[0][:3] if holds else (engine, full, sorting)
    # The first word of the engine's text, with its arguments, is written as a type is.
    head = re.match(r"\w+(\((?:[^()']|'(?:[^'\\]|\\.)*'|\([^()]*\))*\))?", full)
    arguments = parsed(head[0])[1] if head else []
    arguments = [each for each in arguments if each and not each.startswith("'")]
    window = _WINDOW.search(full)
    return Table(
        database,
        name,
        engine,
        tuple(arguments),
        _names(sorting),
        int(window[1]) if window else 0,
    )


def _names(key: str) -> tuple[str, ...]:
    """The columns of a sorting key: `a, b`, or, as it may have been written, `(a, b)`."""
    if not key:
        return ()
    parts = parsed(f"x({key})")[1]
    if len(parts) == 1 and parts[0].startswith("("):
        parts = parsed(f"x{parts[0]}")[1]
    return tuple(part.strip("`") for part in parts)


def columns_of(
    client: Client, relation: str, values: Mapping[str, Any], what: str, binary: Collection[str] = ()
) -> list[Column]:
    """The columns of a table's name or of a query in brackets, in order.

    `binary` are columns whose bytes are no text.
    """
    found = client.rows(f"DESCRIBE TABLE (SELECT * FROM {relation})", values, what)
    told = [(str(name), str(written)) for name, written, *_ in found]
    return [column_of(n, t, binary=n in binary) for n, t in told if not n.startswith(OWN)]
