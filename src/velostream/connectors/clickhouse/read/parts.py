"""Ranges of the rows of a table, so that several queries can read it.

ClickHouse has no snapshot that queries share. But the parts of a MergeTree never change: they are replaced by
new ones. Queries that name parts agree if all of these were still there when the last query had begun.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from velostream.connectors.clickhouse.client.types import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.connectors.clickhouse.client.connections import Client
    from velostream.connectors.clickhouse.client.tables import Table

LEAST_ROWS = 200_000
"""A range has at least this many rows: below, a second query does not pay."""
_PARTS = """
SELECT name, rows FROM system.parts
WHERE active AND database = {database:String} AND table = {table:String} ORDER BY name
"""
_PATCH = "patch-"
"""Parts that hold updates of rows in other parts."""


def ranges_of(client: Client, table: Table, readers: int) -> list[str]:
    """Conditions that together select every row of a table once; none where it cannot be divided.

    Only a table of one server has parts that all queries see.
    """
    if not table.engine.endswith("MergeTree") or table.replicated:
        return []
    found = _parts(client, table)
    total = sum(found.values())
    count = min(readers, total // LEAST_ROWS)
    if count < 2 or any(name.startswith(_PATCH) for name in found):
        return []
    bounds = [total * number // count for number in range(count + 1)]
    return [_between(found, low, high) for low, high in pairwise(bounds)]


def still_there(client: Client, table: Table, ranges: Sequence[str]) -> bool:
    """Whether all parts that the ranges name are still what the table consists of."""
    now = _parts(client, table)
    named = set(re.findall(r"_part = '([^']*)'", " ".join(ranges)))
    return named <= now.keys() and not any(name.startswith(_PATCH) for name in now)


def _parts(client: Client, table: Table) -> dict[str, int]:
    found = client.rows(_PARTS, {"database": table.database, "table": table.name})
    return {str(name): int(rows) for name, rows in found}


def _between(parts: dict[str, int], low: int, high: int) -> str:
    """The rows from number `low` up to before `high`, as if the parts lay one behind the other."""
    terms, names, start = [], [], 0
    for name, rows in parts.items():
        first, last = max(low - start, 0), min(high - start, rows)
        start += rows
        if first >= last:
            continue
        term = f"_part = {literal(name)}"
        if first > 0:
            term += f" AND _part_offset >= {first}"
        if last < rows:
            term += f" AND _part_offset < {last}"
        terms.append(f"({term})")
        names.append(literal(name))
    # The list alone tells the server which parts it need not open.
    return f"_part IN ({', '.join(names)}) AND ({' OR '.join(terms)})"
