"""Rows as JSON text, column by column: the text that `json_value` gives, for less from some 25 rows on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.formats.json.text import json_value

if TYPE_CHECKING:
    from collections.abc import Iterator

_STEP = 65_536
"""Rows that are encoded together: their text stays far below Arrow's limit of 2 GB."""
_QUOTE, _BACKSLASH, _FIRST_PLAIN = 0x22, 0x5C, 0x20
_NO_MICROS = ".000000"


def json_lines(rows: pa.Table, decimals_as_text: bool = False) -> Iterator[str]:
    """One JSON object per row, without line ends."""
    for part in _objects(rows, decimals_as_text):
        yield from part.to_pylist()


def json_bytes(rows: pa.Table, decimals_as_text: bool = False) -> Iterator[bytes]:
    """The same in UTF-8."""
    for part in _objects(rows, decimals_as_text):
        yield from part.cast(pa.binary()).to_pylist()


def _objects(rows: pa.Table, decimals_as_text: bool) -> Iterator[pa.Array]:
    if not rows.num_columns:
        yield pa.array(["{}"] * rows.num_rows, pa.string())
        return
    names = [json.dumps(name, ensure_ascii=False) for name in rows.schema.names]
    marks = [f"{'{' if position == 0 else ','}{name}:" for position, name in enumerate(names)]
    for start in range(0, rows.num_rows, _STEP):
        part = rows.slice(start, _STEP)
        texts = (json_column(column, decimals_as_text) for column in part.columns)
        pieces = [piece for pair in zip(marks, texts, strict=True) for piece in pair]
        yield pc.binary_join_element_wise(*pieces, "}", "")


def json_column(column: pa.ChunkedArray, decimals_as_text: bool = False) -> pa.Array:
    """The JSON text of each value; never null."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    text = _scalars(values, decimals_as_text)
    if text is None:
        return pa.array([json_value(value, decimals_as_text) for value in values.to_pylist()], pa.string())
    return pc.fill_null(text, "null")


def _scalars(values: pa.Array, decimals_as_text: bool) -> pa.Array | None:
    """The text of scalars that Arrow writes as we do; None where it does not."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _scalars(values.dictionary_decode(), decimals_as_text)
    if pa.types.is_boolean(kind):
        return pc.if_else(values, "true", "false")
    if pa.types.is_integer(kind):
        return values.cast(pa.string())
    if pa.types.is_decimal(kind):
        text = values.cast(pa.string())
        # Arrow writes very small numbers with an exponent.
        if kind.scale > 6 and pc.any(pc.match_substring(text, "E")).as_py():
            return None
        return _quoted(text) if decimals_as_text else text
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        plain = values.cast(pa.string())
        return _quoted(plain) if _nothing_to_escape(plain) else _quoted(_escaped(plain))
    if pa.types.is_date32(kind):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _quoted(_instants(values))
    return None


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _nothing_to_escape(text: pa.Array) -> bool:
    """Whether no text has a quote, backslash or control character, from all bytes at once."""
    data = text.buffers()[2]
    if data is None or not len(text):
        return True
    offsets = np.frombuffer(text.buffers()[1], np.int32)
    first, last = offsets[text.offset], offsets[text.offset + len(text)]
    found = np.frombuffer(data, np.uint8)[first:last]
    special = (found < _FIRST_PLAIN) | (found == _QUOTE) | (found == _BACKSLASH)
    return not special.any()


def _escaped(text: pa.Array) -> pa.Array:
    return pa.array(
        [
            None if value is None else json.dumps(value, ensure_ascii=False)[1:-1]
            for value in text.to_pylist()
        ],
        pa.string(),
    )


def _instants(values: pa.Array) -> pa.Array:
    """Instants in ISO 8601, with microseconds where there are any."""
    # Without the zone, which is always UTC: Arrow writes that 10 times as fast.
    text = pc.binary_replace_slice(values.view(pa.timestamp("us")).cast(pa.string()), 10, 11, "T")
    whole = pc.ends_with(text, _NO_MICROS)
    text = (
        pc.if_else(whole, pc.utf8_slice_codeunits(text, 0, -len(_NO_MICROS)), text)
        if pc.any(whole).as_py()
        else text
    )
    return pc.binary_join_element_wise(text, "Z", "") if values.type.tz is not None else text
