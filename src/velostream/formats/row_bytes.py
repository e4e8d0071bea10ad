"""Serialisation of single rows, to set them aside."""

from __future__ import annotations

import pyarrow as pa


def packed(row: pa.Table) -> bytes:
    """One row as an Arrow stream; deterministic: the same bytes for the same values."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        # Rebuilt: a slice shares buffers with its neighbours, which would appear in the bytes.
        writer.write_table(pa.Table.from_pylist(row.to_pylist(), schema=row.schema))
    return bytes(sink.getvalue())


def unpacked(data: bytes) -> pa.Table:
    """The row that was packed."""
    return pa.ipc.open_stream(data).read_all()
