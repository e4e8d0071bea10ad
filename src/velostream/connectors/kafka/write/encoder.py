"""Encodes rows as records: key, value, headers, time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from velostream.errors import ConfigError, SinkConfigError, UnknownNameError, did_you_mean
from velostream.formats.decoder import FormatSettings
from velostream.formats.encoder import RecordEncoder, encoder_for
from velostream.model.columns import OUTGOING_HEADERS, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.connectors.base import SinkContext
    from velostream.connectors.kafka.options import KafkaOptions

Headers = list[tuple[str, bytes | None]]


class Records(NamedTuple):
    """Records in the order of writing. A value of None is a tombstone, which deletes the key."""

    keys: Sequence[bytes | None] | None
    values: Sequence[bytes | None]
    headers: Sequence[Headers] | None = None
    times: Sequence[int | None] | None = None
    """Milliseconds since 1970; None: the time of writing."""

    def without(self, left_out: frozenset[int]) -> Records:
        """All records except those at these indexes."""
        if not left_out:
            return self

        def kept(items: Sequence[Any] | None) -> Any:
            return None if items is None else [x for place, x in enumerate(items) if place not in left_out]

        return Records(kept(self.keys), kept(self.values), kept(self.headers), kept(self.times))


class Encoder:
    """Encodes rows as records, as a statement's properties say."""

    def __init__(self, options: KafkaOptions, context: SinkContext) -> None:
        names = {name.casefold(): name for name in context.schema.names}
        self._key = key_columns(context.schema, context.key)
        self._time = (
            _column(options.timestamp_column, names, "timestamp.column") if options.timestamp_column else None
        )
        if self._time and not pa.types.is_timestamp(context.schema.field(self._time).type):
            raise SinkConfigError(f'"timestamp.column" needs a timestamp, and "{self._time}" is none')
        self._text = context.decimal_format == "string"
        form = options.key_format or _default_key(self._key)
        keys = pa.schema([context.schema.field(name) for name in self._key])
        self._keys = self._format(form, keys, "key", options) if self._key else None
        self._values = self._format(options.format, context.schema, "value", options)

    def records(self, rows: pa.Table) -> Records:
        """One record per row; a retracted row is a tombstone, unless another row with its key is added."""
        taken_back = 0
        if WEIGHT in rows.schema.names:
            taken_back = pc.sum(pc.less(rows.column(WEIGHT), 0)).as_py() or 0
            rows = rows.drop_columns([WEIGHT])
        headers = None
        if OUTGOING_HEADERS in rows.schema.names:
            found = rows.column(OUTGOING_HEADERS).to_pylist()
            headers = [[(header["key"], header["value"]) for header in each or ()] for each in found]
            rows = rows.drop_columns([OUTGOING_HEADERS])
        keys = list(self._keys.records(rows.select(self._key))) if self._keys is not None else None
        times = _millis(rows.column(self._time)) if self._time else None
        values: list[bytes | None] = list(self._values.records(rows.slice(taken_back)))
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

    def _format(self, form: str, schema: pa.Schema, what: str, options: KafkaOptions) -> RecordEncoder:
        settings = FormatSettings(
            options.schema_file if what == "value" else None,
            options.schema_registry_url,
            f"{options.topic}-{what}",
        )
        try:
            return encoder_for(form, schema, settings, decimals_as_text=self._text)
        except ConfigError as exc:
            raise SinkConfigError(exc.message, detail=exc.detail, hint=exc.hint) from exc


def key_columns(schema: pa.Schema, key: Sequence[str]) -> list[str]:
    """The key columns in the spelling of the result; UnknownNameError for one that it lacks."""
    names = {name.casefold(): name for name in schema.names}
    return [_column(name, names, "key") for name in key]


def _default_key(columns: Sequence[str]) -> str:
    """A single key column as it is, as most tools write keys; several as a JSON object."""
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
