"""System and hidden columns: all columns besides the user's.

Names that begin with one underscore are system columns: users may select them by name, `*` leaves them out.
Names that begin with two are hidden: only the engine uses them, and no statement may create one. Names that
occur only within one SQL text of one module, and in no row that leaves it, are defined in that module.
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
"""Orders the rows of a source; in careful frames it is also unique. Not for users."""
KEY = "_key"
TOPIC = "_topic"
HEADERS = "_headers"
TOMBSTONE = "_tombstone"
"""Of sources with messages: the message is a tombstone, which deletes the row of its key."""

SYSTEM_COLUMNS = (ENTERED, EVENT_TIME, PARTITION, OFFSET)
"""The system columns of every source."""

NAMED_COLUMNS = (*SYSTEM_COLUMNS, KEY, TOPIC, HEADERS)
"""System columns that users may select; the connector says which of them a source has."""

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
"""The types of all system columns, in Spark's DDL."""


@cache
def arrow_types() -> Mapping[str, pa.DataType]:
    """The same as Arrow types; Arrow is imported only where it is needed."""
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
"""+1 for an added row, -1 for a retracted one; absent where a relation only grows."""
BAD = "_bad"
"""In careful frames: why a record cannot be decoded; null where it can."""
POSITION_KEPT = "__position"
"""The position of the input row that a row came from."""
ROW_AS_JSON = "__row"
"""Of input rows that are looked for, late ones and bad ones: the row as JSON."""
NO_ROW = "__no_row"
"""Of a batch of upserts: the row of this message key is deleted, or fails the filter."""
OUTGOING_HEADERS = "__headers"
"""Of rows to be written to a sink: the record's headers, each with `key` and `value`."""

# --- hidden columns of stored tables -----------------------------------------------------------------------

HIDDEN = "__"
"""Prefix of hidden columns."""
MESSAGE_KEY = "__key"
"""Key of a table that holds the last row of each message key."""
EXPIRES = "__expires"
"""Of a table with a retention: when the row expires, in microseconds; null where it does not."""
SHOWN = "__shown"
"""Boolean: false in rows that HAVING, or a window that is still open, hides from readers."""
HAVING = "__having"
"""Boolean, of windows that are shown when they close: whether they satisfy HAVING."""
GROUP_ROWS = "__n"
"""The number of input rows of a group."""
EVERYTHING = "__all"
"""Key of an aggregate without GROUP BY; always 0."""
ROW_ID = "_rowid"
"""Of snapshots: the row id."""
DELTA_ROW = "__row"
"""Of the files of a Delta table, not of the table: each row's number, increasing in the order of writing."""
DELTA_GONE = "__deleted"
"""Of rows merged into a Delta table: the row of this number is deleted."""

# --- hidden columns of rows that a job keeps ---------------------------------------------------------------

FROM = "__from"
"""When the row starts to pass its clock filter, in microseconds; null: from the beginning."""
UNTIL = "__until"
"""When the row stops passing, in microseconds; null: never."""
TIME = "__time"
"""The event time in microseconds, of rows that are kept by it."""
CLOSES = "__closes"
"""The moment from which no match for the row can arrive any more, in microseconds."""
PASSES = "__passes"
"""The moment at which the watermark has definitely passed the row, in microseconds."""
CLOSED = "_closed"
"""Of rows with `CLOSES`: whether the watermark has passed it."""
LEAVES = "__leaves"
"""The moment at which the results of the row are final, so that it is forgotten, in microseconds."""
SEQUENCE = "__seq"
"""Of rows kept for OVER: a number in the order of arrival."""
GROUP = "__group"
"""Of rows that OVER is computed over: a number for the key."""
ORDER = "__order"
"""Of those: the place in the order of time, then of arrival."""
CHUNK = "__chunk"
"""Key of a chunk of rows kept for OVER: the step that wrote it."""
CHUNK_LAST = "__last"
"""The latest event time of the chunk, in microseconds."""
CHUNK_CUT = "__cut"
"""Whether earlier rows of the chunk's key were forgotten."""
CHUNK_ROWS = "__rows"
"""The rows of the chunk, as a list."""
RETRACTED_AT = "__gone"
"""Of a row kept for OVER, where a source can shrink: the step that retracted it; deleted by a later one."""

# --- hidden columns of dead letters ------------------------------------------------------------------------

LETTER_JOB = "__job"
"""The id of the job, which a statement that takes the place of another does not share."""
LETTER_INPUT = "__input"
"""The input of the job by which the record is read again."""
LETTER_POSITION = "__position"
"""The position of the record in that input."""
LETTER_ROW = "__row"
"""What a sink refused, as it would be written again."""
LETTER_BATCH = "__batch"
"""Which batch, and which stage of it."""

# --- names that are taken ----------------------------------------------------------------------------------

OURS = frozenset({POSITION, ROW_ID, WEIGHT})
"""Names of columns beside those of a table: in its log, its changes, and a job's input."""


def reserved(column: str) -> bool:
    """Whether a column of that name would be mistaken for one of ours."""
    return column.startswith(HIDDEN) or column.casefold() in OURS
