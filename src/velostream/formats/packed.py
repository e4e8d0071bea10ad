"""Single rows as bytes, for keeping them aside."""

from __future__ import annotations

import pyarrow as pa


def packed(row: pa.Table) -> bytes:
    """One row as an Arrow stream, the same bytes for the same values."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        # Built anew: what the columns of a slice share with their neighbours would show in the bytes.
        writer.write_table(pa.Table.from_pylist(row.to_pylist(), schema=row.schema))
    return bytes(sink.getvalue())


def unpacked(data: bytes) -> pa.Table:
    """The row that was packed."""
    return pa.ipc.open_stream(data).read_all()
