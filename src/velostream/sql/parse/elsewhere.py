"""What users of other databases write, and what to write here instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

_REPLACES = "INSERT OR REPLACE INTO t … replaces the rows with the same key"
STATEMENTS = {
    "COPY": "a file is a source: CREATE TABLE t AS SELECT * FROM file:///path/orders.csv; "
    "velo topic produce fills a topic from a file",
    "MERGE": _REPLACES,
    "UPSERT": _REPLACES,
    "REPLACE": _REPLACES,
    "BEGIN": "each statement is a transaction of its own",
    "COMMIT": "each statement is a transaction of its own",
    "ROLLBACK": "each statement is a transaction of its own",
}
"""What to do instead of a statement, by its first word."""

KINDS = {
    "INDEX": "none is needed: a table builds the indexes that pay by itself",
    "DATABASE": "a data directory is a database: --data-dir",
    "SCHEMA": "a data directory is a database: --data-dir",
    "TOPIC": "velo topic create makes one",
    "FUNCTION": "functions are Python's: @db.udf",
}
"""What to do instead of CREATE of something else."""

ON_CONFLICT = _REPLACES

TYPES = {
    **dict.fromkeys(("SERIAL", "BIGSERIAL", "SMALLSERIAL"), "declare BIGINT: values are not made up"),
    **dict.fromkeys(("UUID", "JSON", "JSONB", "XML", "ENUM", "INET"), "declare STRING"),
}
"""What to declare instead of a type."""

_CONSTRAINTS = frozenset(
    {
        "AUTOINCREMENT",
        "AUTO_INCREMENT",
        "CHECK",
        "COLLATE",
        "COMMENT",
        "CONSTRAINT",
        "FOREIGN",
        "GENERATED",
        "IDENTITY",
        "NOT",
        "NULL",
        "ON",
        "REFERENCES",
        "UNIQUE",
    }
)


def after_column(word: str) -> str | None:
    """A hint for a word after the type of a column."""
    if word.upper() not in _CONSTRAINTS:
        return None
    return "a column has a name, a type, and perhaps DEFAULT or PRIMARY KEY"


_READERS = re.compile(r"(read_\w+|\w+_scan|openrowset|glob)\Z", re.IGNORECASE)


def reader(function: str) -> str | None:
    """A hint for a function of another database that reads files."""
    return "a file is a source: FROM file:///path/orders.csv" if _READERS.match(function) else None


_PATH = re.compile(r"(\.{0,2}|~)/.")
_FILE = re.compile(
    r"[^\s:]+\.(csv|tsv|json|jsonl|ndjson|parquet|avro|orc|txt|log|xlsx?)(\.\w+)?\Z", re.IGNORECASE
)
_ADDRESS = re.compile(r"(?P<scheme>[a-z][\w+-]*)(?P<mark>[:.])(?P<rest>/{0,1}[^/:\s].*)\Z", re.IGNORECASE)


def source(word: str, schemes: Container[str]) -> str | None:
    """A hint, where a word in FROM looks like a file, or an address without `://`."""
    word = word.strip("'\"`,;()")
    if word.lower() in schemes:
        return f"write {word.lower()}://…"
    address = _ADDRESS.match(word)
    if address is not None and address["scheme"].lower() in schemes:
        return f"write {address['scheme'].lower()}://{address['rest']}"
    if _FILE.match(word) or _PATH.match(word):
        return f"write file://{word}"
    return None
