"""Changes by key, as one MERGE."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import CommitProperties, DeltaTable

    from velostream.connectors.lakes.changes import Changes

GONE = "_velostream_gone"
_LONGEST_TEXT = 256


def merge(
    table: DeltaTable, step: Changes, key: Sequence[str], written: Sequence[str], commit: CommitProperties
) -> None:
    """Replace, insert and delete rows by key; columns that are not `written` keep their values."""
    assert step.gone is not None
    rows = _marked(step.added.select(list(written)), gone=False)
    if step.gone.num_rows:
        rows = pa.concat_tables([rows, _marked(step.gone, gone=True)], promote_options="permissive")
    values = {quoted(name): f"source.{quoted(name)}" for name in written}
    (
        table.merge(
            rows,
            _condition(rows, key),
            source_alias="source",
            target_alias="target",
            commit_properties=commit,
        )
        .when_matched_delete(f"source.{GONE}")
        .when_matched_update(values, f"NOT source.{GONE}")
        .when_not_matched_insert(values, f"NOT source.{GONE}")
        .execute()
    )


def quoted(name: str) -> str:
    """A column's name, as SQL."""
    return '"' + name.replace('"', '""') + '"'


def _marked(rows: pa.Table, *, gone: bool) -> pa.Table:
    free = pa.schema([pa.field(field.name, field.type) for field in rows.schema])
    return rows.cast(free).append_column(GONE, pa.repeat(gone, rows.num_rows))


def _condition(rows: pa.Table, key: Sequence[str]) -> str:
    same = [f"(target.{quoted(name)} IS NOT DISTINCT FROM source.{quoted(name)})" for name in key]
    return " AND ".join([*same, *(bound for name in key for bound in _bounds(name, rows[name]))])


def _bounds(name: str, values: pa.ChunkedArray) -> list[str]:
    """Limits of a column, by which files of the table are left unread."""
    if values.null_count or not values:
        return []
    try:
        ends = pc.min_max(values).as_py()
    except (ValueError, OverflowError):
        # Python has no such time.
        return []
    least, most = _literal(ends["min"]), _literal(ends["max"])
    if least is None or most is None:
        return []
    return [f"target.{quoted(name)} >= {least}", f"target.{quoted(name)} <= {most}"]


def _literal(value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        zone = f'Some("{"UTC"}")' if value.tzinfo else "None"
        return f"arrow_cast('{value.isoformat()}', 'Timestamp(Microsecond, {zone})')"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str) and len(value) <= _LONGEST_TEXT and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return None
