"""Replay of dead letters of a sink: the rows that are written to it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.formats.row_bytes import unpacked
from velostream.model.columns import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from velostream.engine.bad_rows.letter import Letter
    from velostream.engine.stage import Stage
    from velostream.model.changes import SourceOffsets


def to_write(
    work: Stage, letters: Sequence[Letter], have: SourceOffsets
) -> tuple[list[tuple[Letter, pa.Table]], list[Letter]]:
    """The rows of letters to write again, and the letters that have become moot.

    Where the sink follows a table by key, the current row of each key is written, since the refused one is
    outdated; the letter is moot when the key is gone or a later letter has the same key. The letter of a
    deletion is written as one for as long as the key is gone.
    """
    rows = [(letter, unpacked(letter.row or b"")) for letter in letters]
    items = list(work.inputs.all.values())
    source = items[0].source
    if len(items) > 1 or source.traits.positioned or not source.key:
        return rows, []
    newest = source.latest(have.get(items[0].id))
    found: list[tuple[Letter, pa.Table]] = []
    moot: list[Letter] = []
    seen: set[tuple[object, ...]] = set()
    for letter, row in reversed(rows):
        keys = row.select(list(source.key))
        key = tuple(column[0].as_py() for column in keys.columns)
        if None in key:
            # The index does not contain keys with nulls: the current row cannot be looked up.
            found.append((letter, row))
            continue
        now = work.inputs.arrow_where(items[0].id, newest, source.key, keys)
        if now.num_rows and key not in seen:
            names = [name for name in row.schema.names if name != WEIGHT]
            found.append((letter, now.select(names).slice(0, 1)))
        elif key not in seen and WEIGHT in row.schema.names and row[WEIGHT][0].as_py() < 0:
            found.append((letter, row))
        else:
            moot.append(letter)
        seen.add(key)
    return found[::-1], moot
