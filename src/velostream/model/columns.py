"""Every column that is not the user's: those that sources offer beside their own, and those that we add.

Names that begin with one underscore are system columns: users may ask for them by name, `*` leaves them out.
Names that begin with two are hidden: nobody but us sees them, and no statement may make one. Names that occur
within one SQL text of one module, and in no row that leaves it, stay in that module.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

# --- system columns of sources ----------------------------------------------------------------------------

ENTERED = "_timestamp"
"""When the row entered its source."""
EVENT_TIME = "_event_time"
"""The event time that the statement names; `ENTERED` where it names none."""
PARTITION = "_partition"
OFFSET = "_offset"
POSITION = "_position"
"""Orders the rows of a source; in careful frames it tells them apart, too. Not for users."""
KEY = "_key"
TOPIC = "_topic"
HEADERS = "_headers"
TOMBSTONE = "_tombstone"
"""Of sources with messages: the message deletes the row of its key."""

SYSTEM_COLUMNS = (ENTERED, EVENT_TIME, PARTITION, OFFSET)
"""What every source row has."""

NAMED_COLUMNS = (*SYSTEM_COLUMNS, KEY, TOPIC, HEADERS)
"""What users may name of one source or another; which of them a source has, its connector tells."""

SYSTEM_TYPES: Mapping[str, str] = {
    ENTERED: "TIMESTAMP",
    EVENT_TIME: "TIMESTAMP",
    PARTITION: "STRING",
    OFFSET: "BIGINT",
    POSITION: "STRING",
    KEY: "STRING",
    TOPIC: "STRING",
    HEADERS: "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    TOMBSTONE: "BOOLEAN",
}
"""Of every system column that a source may have, as Spark writes it."""


@cache
def arrow_types() -> Mapping[str, pa.DataType]:
    """The same as Arrow has them, which is loaded only where rows are."""
    import pyarrow as pa

    own = {
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "STRING": pa.string(),
        "BIGINT": pa.int64(),
        "BOOLEAN": pa.bool_(),
    }
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return {name: own.get(kind, headers) for name, kind in SYSTEM_TYPES.items()}


# --- columns of frames between a source and a step ---------------------------------------------------------

WEIGHT = "_weight"
"""+1 for a row that came, -1 for one that is retracted; absent where a relation only grows."""
BAD = "_bad"
"""In careful frames: why a record cannot be decoded; null where it can."""
OUTGOING_HEADERS = "__headers"
"""Of rows on their way to a sink: the record's headers, each with `key` and `value`."""

# --- hidden columns of stored tables -----------------------------------------------------------------------

HIDDEN = "__"
"""How the names of hidden columns begin."""
MESSAGE_KEY = "__key"
"""Key of a table that holds the last row of each message key."""
EXPIRES = "__expires"
"""Of a table with a retention: when the row leaves, in microseconds; null where it stays."""
SHOWN = "__shown"
"""Boolean: false in rows that HAVING, or a window that is still open, keeps from readers."""
HAVING = "__having"
"""Boolean, of windows that are shown when they close: whether HAVING lets them be."""
GROUP_ROWS = "__n"
"""How many input rows a group has."""
EVERYTHING = "__all"
"""Key of an aggregate without GROUP BY; always 0."""
POSITION_KEPT = "__position"
"""The position of the row of a stream that a row came from."""
NO_ROW = "__gone"
"""Of a batch of upserts: there is no row of this message key, or it does not pass the filter."""
ROW_ID = "_rowid"
"""Of snapshots: the number of the row."""
DELTA_ROW = "__row"
"""Of the files of a Delta table, not of the table: each row's own number, rising in the order of writing."""
DELTA_GONE = "__gone"
"""Of what is merged into a Delta table: the row of this number is deleted."""

# --- hidden columns of rows that a job keeps ---------------------------------------------------------------

FROM = "__from"
"""When the row comes, in microseconds; null where it is there from the beginning."""
UNTIL = "__until"
"""When the row goes, in microseconds; null where it stays."""
TIME = "__time"
"""The event time in microseconds, of rows that are kept by it."""
CLOSES = "__closes"
"""When no row can come any more that this one would meet, in microseconds."""
PASSES = "__passes"
"""When the watermark has passed the row for good, in microseconds."""
CLOSED = "_closed"
"""Of rows with such a moment: whether the watermark has passed it."""
LEAVES = "__leaves"
"""When what is computed from the row is settled, so that it is forgotten, in microseconds."""
SEQUENCE = "__seq"
"""Of rows kept for OVER: the number in the order in which rows came."""
GROUP = "__group"
"""Of rows that an OVER is computed over: a number for the key."""
ORDER = "__order"
"""Of those: the place in the order of time, then of coming."""
CHUNK = "__chunk"
"""Key of a chunk of rows kept for OVER: the step that wrote it."""
CHUNK_LAST = "__last"
"""The latest event time of the chunk, in microseconds."""
CHUNK_CUT = "__cut"
"""Whether rows of the chunk's key before these were forgotten."""
CHUNK_ROWS = "__rows"
"""The rows of the chunk, as a list."""
RETRACTED_AT = "__gone"
"""Of a row kept for OVER, where a source can shrink: the step that retracted it; it leaves with a later."""

# --- names that are taken ----------------------------------------------------------------------------------

OURS = frozenset({POSITION, ROW_ID, WEIGHT})
"""Names of columns that stand beside those of a table: in its log, in its changes, in what a job reads."""


def reserved(column: str) -> bool:
    """Whether a column of that name would be taken for one of ours."""
    return column.startswith(HIDDEN) or column.casefold() in OURS
