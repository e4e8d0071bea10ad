"""Dictionary encoding: a column of few different texts is stored as codes.

A code takes two bytes, a text its letters and four more. Copying, comparing and grouping codes costs a tenth
to a half of what it costs with texts, in DuckDB too. Only the writer assigns codes, and it never reassigns
one: the texts of every segment are a prefix of the newest list. So segments merge, and the pieces of a column
are concatenated, without looking at a row. Codes stay inside the serving layer; readers get texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.model.tables import TableSpec

CODES = pa.dictionary(pa.int16(), pa.string())
"""The type of a dictionary-encoded column."""

MOST = 1 << 15
"""Different texts that two bytes can encode. A column with more of them is stored as texts."""
ALWAYS = 1024
_REPEATED = 4
"""Up to `ALWAYS` texts, codes always pay: the list is small beside the segments.

Above, each text must occur `_REPEATED` times on average: then codes and texts together take less than half.
"""
SAMPLE = 4096
_DIFFERENT = 0.95
"""The share of different values in a sample of a column of 40,000 texts.

A column above it is rejected without hashing it as a whole, which takes 0.1 µs a row.
"""
LONGEST = (1 << 31) - 1
"""Bytes of text that fit in one Arrow array."""

Codes = npt.NDArray[np.int16]


class Dictionaries:
    """The codes of the texts of one table. Not thread safe: only the writer uses it."""

    def __init__(self, spec: TableSpec) -> None:
        # A single key column is unique, so it never repeats.
        alone = spec.key if len(spec.key) == 1 else ()
        texts = [field.name for field in spec.schema if field.type == pa.string() and field.name not in alone]
        self._columns = {name: _Texts() for name in texts}

    def encode(self, rows: pa.Table) -> pa.Table:
        """The rows with repeating columns as codes; a column that turns out not to repeat stays text.

        Columns that are codes of another list are recoded.
        """
        for name, texts in list(self._columns.items()):
            place = rows.schema.get_field_index(name)
            coded = texts.encode(rows.column(place))
            if coded is None:
                # For good: segments encoded so far are decoded when they are merged.
                del self._columns[name]
            else:
                rows = rows.set_column(place, rows.schema.field(place).with_type(CODES), coded)
        return rows


class _Texts:
    """The texts of one column, each with its code; grows only."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._rows = 0
        self._texts = pa.array([], pa.string())

    def encode(self, column: pa.ChunkedArray) -> pa.ChunkedArray | None:
        """The column as codes; None when it has too many different texts."""
        if not self._codes and _hopeless(column):
            return None
        self._rows += len(column)
        pieces = []
        for chunk in column.chunks:
            held = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            try:
                own = self._own(held.dictionary.to_pylist())
            except UnicodeDecodeError:
                return None
            if own is None:
                return None
            pieces.append(_recoded(held.indices, own))
        return pa.chunked_array([_coded(piece, self._texts) for piece in pieces], type=CODES)

    def _own(self, texts: list[str]) -> Codes | None:
        """Our code of each of these distinct texts, new ones included; None when there are too many."""
        known = self._codes
        fresh = [text for text in texts if text not in known]
        total = len(known) + len(fresh)
        if total > MOST or (total > ALWAYS and total * _REPEATED > self._rows):
            return None
        if fresh:
            known.update(zip(fresh, range(len(known), total), strict=True))
            self._texts = pa.concat_arrays([self._texts, pa.array(fresh, pa.string())])
        return np.fromiter(map(known.__getitem__, texts), np.int16, count=len(texts))


def _hopeless(column: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(column.type) or len(column) <= 4 * SAMPLE:
        return False
    rows = np.random.default_rng(0).choice(len(column), SAMPLE, replace=False, shuffle=False)
    return bool(pc.count_distinct(column.take(pa.array(np.sort(rows)))).as_py() > _DIFFERENT * SAMPLE)


def _recoded(codes: pa.Array, own: Codes) -> pa.Array:
    """Codes of one dictionary translated to another, in which the texts have the codes `own`."""
    if codes.type == pa.int16() and bool(np.array_equal(own, np.arange(len(own)))):
        return codes
    if not len(own):
        return pa.nulls(len(codes), pa.int16())
    if not codes.null_count:
        return pa.array(own[np.asarray(codes)])
    return pa.array(own[np.asarray(codes.fill_null(0))], mask=np.asarray(codes.is_null()))


def _coded(codes: pa.Array, texts: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(codes, texts, safe=False)


# --- columns in pieces ------------------------------------------------------------------------------


def together(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The rows concatenated; a column is codes of one list of texts, or texts."""
    fields, columns = [], []
    for place, stored in enumerate(schema):
        field = stored.with_type(stored.type.value_type) if pa.types.is_dictionary(stored.type) else stored
        pieces = [batch.column(place) for batch in batches]
        if any(pa.types.is_dictionary(piece.type) for piece in pieces):
            texts = _one_list(pieces)
            if texts is not None:
                field = field.with_type(CODES)
                pieces = [_coded(piece.indices, texts) for piece in pieces]
            else:
                pieces = [text for piece in pieces for text in _decoded(piece)]
        fields.append(field)
        columns.append(pa.chunked_array(pieces, type=field.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _one_list(pieces: Sequence[pa.Array]) -> pa.Array | None:
    """The list of texts that decodes the codes of all pieces; None when there is none."""
    if not all(pa.types.is_dictionary(piece.type) for piece in pieces):
        return None
    lists = [piece.dictionary for piece in pieces]
    longest = max(lists, key=len)
    return longest if all(begins(longest, each) for each in lists) else None


def begins(texts: pa.Array, shorter: pa.Array) -> bool:
    """Whether one list of texts is a prefix of another, so that its codes mean the same there."""
    return bool(texts.slice(0, len(shorter)).equals(shorter))


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows concatenated into one batch, in which they must fit."""
    if len(batches) == 1:
        return batches[0]
    rows = together(batches, batches[0].schema)
    columns = []
    for column in rows.columns:
        if pa.types.is_dictionary(column.type):
            codes = pa.concat_arrays([piece.indices for piece in column.chunks])
            columns.append(_coded(codes, column.chunk(0).dictionary))
        else:
            columns.append(pa.concat_arrays(column.chunks))
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def plain(rows: pa.Table) -> pa.Table:
    """The rows with texts instead of codes, as readers see them; costs 5 ns a code."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(place, field.with_type(pa.string()), plain_column(rows.column(place)))
    return rows


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with texts instead of codes."""
    if not pa.types.is_dictionary(column.type):
        return column
    pieces = [text for piece in column.chunks for text in _decoded(piece)]
    return pa.chunked_array(pieces, type=column.type.value_type)


def _decoded(piece: pa.Array) -> list[pa.Array]:
    """The texts in as many arrays as they need: one array holds at most two gigabytes."""
    if not pa.types.is_dictionary(piece.type):
        return [piece]
    lengths = np.asarray(pc.binary_length(piece.dictionary))
    if len(piece) * int(lengths.max(initial=0)) <= LONGEST or len(piece) < 2:
        return [piece.dictionary_decode()]
    half = len(piece) // 2
    return _decoded(piece.slice(0, half)) + _decoded(piece.slice(half))


def text_bytes(piece: pa.Array) -> int:
    """An upper bound of the bytes that the texts of a piece would take decoded."""
    lengths = np.append(np.asarray(pc.binary_length(piece.dictionary)), 0).astype(np.int64)
    return int(lengths[np.asarray(piece.indices.fill_null(0))].sum()) + 4 * len(piece)


def for_disk(rows: pa.Table) -> pa.Table:
    """The rows, with columns decoded whose list of texts would take more space than it saves."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            column = rows.column(place)
            if column.num_chunks and _REPEATED * len(column.chunk(0).dictionary) > len(column):
                rows = rows.set_column(place, field.with_type(pa.string()), plain_column(column))
    return rows


def comparable(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Two columns as codes of one list, else as texts, so that they can be compared."""
    pieces = [*left.chunks, *right.chunks]
    if pieces and _one_list(pieces) is not None:
        left, right = (
            pa.chunked_array([piece.indices for piece in column.chunks], type=pa.int16())
            for column in (left, right)
        )
        return left, right
    return plain_column(left), plain_column(right)


# --- values -----------------------------------------------------------------------------------------


def code_of(texts: pa.Array, text: str) -> int:
    """The code of a text; -1 when it has none."""
    return int(pc.index(texts, text).as_py())


def equal_to(column: pa.DictionaryArray, text: str) -> npt.NDArray[np.bool_]:
    """For each row whether it has this text; null has none."""
    code = code_of(column.dictionary, text)
    return (
        np.asarray(column.indices.fill_null(-2)) == code if code >= 0 else np.zeros(len(column), dtype=bool)
    )
