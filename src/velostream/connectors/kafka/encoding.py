"""Rows to records: key, value, headers, time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from velostream.errors import SinkConfigError, UnknownNameError, UnsupportedError, did_you_mean
from velostream.formats.csv_text import CsvDialect
from velostream.formats.csv_writing import csv_lines
from velostream.formats.json_text import json_value, plain_text
from velostream.formats.json_writing import json_bytes
from velostream.model.changes import HEADERS, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from velostream.connectors.base import SinkContext
    from velostream.connectors.kafka.options import KafkaOptions

Headers = list[tuple[str, bytes | None]]
_CSV = CsvDialect(",", '"', "", False)


class Records(NamedTuple):
    """Records in the order in which they are written. A value of None is a tombstone: the key is gone."""

    keys: Sequence[bytes | None] | None
    values: Sequence[bytes | None]
    headers: Sequence[Headers] | None = None
    times: Sequence[int | None] | None = None
    """Milliseconds since 1970; None: when they are written."""

    def without(self, left_out: frozenset[int]) -> Records:
        """All but those at some places."""
        if not left_out:
            return self

        def kept(items: Sequence[Any] | None) -> Any:
            return None if items is None else [x for place, x in enumerate(items) if place not in left_out]

        return Records(kept(self.keys), kept(self.values), kept(self.headers), kept(self.times))


class Encoder:
    """Makes records of rows as a statement's properties say."""

    def __init__(self, options: KafkaOptions, context: SinkContext) -> None:
        self._text = context.decimal_format == "string"
        names = {name.casefold(): name for name in context.schema.names}
        self._key = [_column(name, names, "key") for name in context.key]
        self._time = (
            _column(options.timestamp_column, names, "timestamp.column") if options.timestamp_column else None
        )
        if self._time and not pa.types.is_timestamp(context.schema.field(self._time).type):
            raise SinkConfigError(f'"timestamp.column" needs a timestamp, and "{self._time}" is none')
        self._key_bytes = self._format(options.key_format or _default_key(self._key), self._key, "key.format")
        self._value_bytes = self._format(options.format, context.schema.names, "format")

    def records(self, rows: pa.Table) -> Records:
        """One record per row; a row that is taken back is a tombstone, unless another with its key comes."""
        taken_back = 0
        if WEIGHT in rows.schema.names:
            taken_back = pc.sum(pc.less(rows.column(WEIGHT), 0)).as_py() or 0
            rows = rows.drop_columns([WEIGHT])
        headers = None
        if HEADERS in rows.schema.names:
            found = rows.column(HEADERS).to_pylist()
            headers = [[(header["key"], header["value"]) for header in each or ()] for each in found]
            rows = rows.drop_columns([HEADERS])
        keys = self._keys(rows) if self._key else None
        times = _millis(rows.column(self._time)) if self._time else None
        values: list[bytes | None] = list(self._value_bytes(rows.slice(taken_back)))
        if not taken_back:
            return Records(keys, values, headers, times)
        assert keys is not None, "rows are taken back by their key"
        coming = set(keys[taken_back:])
        tombstones = [key for key in dict.fromkeys(keys[:taken_back]) if key not in coming]
        count = len(tombstones)
        return Records(
            [*tombstones, *keys[taken_back:]],
            [*[None] * count, *values],
            None if headers is None else [*([] for _ in range(count)), *headers[taken_back:]],
            None if times is None else [*[None] * count, *times[taken_back:]],
        )

    def _keys(self, rows: pa.Table) -> list[bytes | None]:
        return list(self._key_bytes(rows.select(self._key)))

    def _format(
        self, form: str, names: Sequence[str], property_name: str
    ) -> Callable[[pa.Table], Iterable[bytes | None]]:
        if form == "json":
            return lambda rows: json_bytes(rows, self._text)
        if form == "csv":
            return lambda rows: (line.removesuffix("\n").encode() for line in csv_lines(rows, _CSV))
        if form == "raw":
            if len(names) > 1:
                raise SinkConfigError(
                    f'"{property_name}" = "raw" writes one column as it is, and there are {", ".join(names)}',
                    hint="select one column, or take another format",
                )
            return lambda rows: raw_records(rows.column(0))
        raise UnsupportedError(f'"{property_name}" = "{form}" is not in this version yet for sinks')


def raw_records(column: pa.ChunkedArray) -> list[bytes | None]:
    """Texts and bytes as they are, other values as text; null stays null."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string()).cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_binary(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    return [None if value is None else _plain(value).encode() for value in column.to_pylist()]


def _plain(value: Any) -> str:
    return json_value(value) if isinstance(value, dict | list) else plain_text(value)


def _default_key(columns: Sequence[str]) -> str:
    """One column as it is, as most tools write keys; several as an object."""
    return "raw" if len(columns) <= 1 else "json"


def _column(name: str, names: dict[str, str], property_name: str) -> str:
    found = names.get(name.casefold())
    if found is None:
        raise UnknownNameError(
            f'unknown column "{name}" in property "{property_name}"',
            hint=did_you_mean(name, names.values()) or f"there is: {', '.join(names.values())}",
        )
    return found


def _millis(column: pa.ChunkedArray) -> list[int | None]:
    return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
