"""What a statement in the binlog means for a table that is followed.

Rows are changed by row events. Statements stand for everything else: definitions of tables, truncations, and
changes of sessions that log statements instead of rows.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from itertools import pairwise

_TOKEN = re.compile(
    r"""/\*!\d*|\*/|/\*.*?\*/|--[ \t][^\n]*|\#[^\n]*      # comments; what stands in /*! … */ counts
      |`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"
      |[\w$\u0080-\uffff]+|\S""",
    re.VERBOSE | re.DOTALL,
)
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH"})
_OTHER_ROWS = frozenset({"PARTITION", "PARTITIONING", "TABLESPACE", "RENAME", "EXCHANGE"})
"""Words of ALTER TABLE after which the table may hold other rows."""
_BEFORE_NAME = frozenset({"OR", "REPLACE", "ONLINE", "IGNORE", "IF", "NOT", "EXISTS", "TABLE", "TABLES"})
"""Words between the verb of a definition and the name of the table."""


class Meaning(Enum):
    """What happened to the table."""

    NOTHING = auto()
    BEGIN = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    TRUNCATED = auto()
    """It is empty."""
    ALTERED = auto()
    """Its columns may have changed; its rows are the same, but for columns that were added."""
    REPLACED = auto()
    """It may have other rows, and nothing tells which."""
    MADE = auto()
    """It was dropped or created: it has no rows now."""


def meaning(text: str, ran_in: str, schema: str, table: str) -> Meaning:
    """What a statement that ran in a database means for a table."""
    first = text[:8].upper()
    for word, found in (("BEGIN", Meaning.BEGIN), ("COMMIT", Meaning.COMMIT), ("ROLLBACK", Meaning.ROLLBACK)):
        if first.startswith(word) and text.upper().strip() == word:
            return found
    folded = text.lower()
    if table.lower() not in folded and "database" not in folded and "schema" not in folded:
        return Meaning.NOTHING
    words = _words(text)
    if not words:
        return Meaning.NOTHING
    verb = words[0].upper()
    if verb == "DROP" and len(words) > 1 and words[1].upper() in ("DATABASE", "SCHEMA"):
        named = [word for word in words if word != ";"][-1]
        return Meaning.MADE if _name(named) == schema.lower() else Meaning.NOTHING
    if not _names(words, ran_in, schema, table):
        return Meaning.NOTHING
    if verb == "TRUNCATE":
        return Meaning.TRUNCATED
    if verb in ("CREATE", "ALTER", "DROP", "RENAME"):
        return _of_definition(verb, words, ran_in, schema, table)
    return Meaning.REPLACED if verb in _CHANGES else Meaning.NOTHING


def _of_definition(verb: str, words: list[str], ran_in: str, schema: str, table: str) -> Meaning:
    """What a statement that names the table somewhere means for it, where it defines something."""
    head = []
    for word in words[1:]:
        if word.upper() not in _BEFORE_NAME:
            break
        head.append(word.upper())
    # Anything else, such as TEMPORARY or VIEW, defines something else, whatever its name is.
    if not {"TABLE", "TABLES"} & set(head):
        return Meaning.NOTHING
    rest = words[len(head) + 1 :]
    if verb in ("DROP", "RENAME"):
        return Meaning.MADE if verb == "DROP" else Meaning.REPLACED
    ours = _names(rest[: 3 if rest[1:2] == ["."] else 1], ran_in, schema, table)
    if verb == "CREATE":
        # A table that was there stays as it is, and one that was not has no rows.
        return Meaning.MADE if ours and "NOT" not in head else Meaning.NOTHING
    if not ours:
        return Meaning.REPLACED if _becomes(rest, ran_in, schema, table) else Meaning.NOTHING
    upper = {word.upper() for word in rest}
    return Meaning.REPLACED if upper & _OTHER_ROWS - _renames_inside(words) else Meaning.ALTERED


def _becomes(words: list[str], ran_in: str, schema: str, table: str) -> bool:
    """Whether ALTER of another table gives it the name of this one, or exchanges rows with it."""
    for place, word in enumerate(words):
        between = {"RENAME": ("TO", "AS", "="), "WITH": ("TABLE",)}.get(word.upper())
        if between is None:
            continue
        after = words[place + 1 :]
        if after and after[0].upper() in between:
            after = after[1:]
        if _names(after[: 3 if after[1:2] == ["."] else 1], ran_in, schema, table):
            return True
    return False


def _renames_inside(words: list[str]) -> set[str]:
    """RENAME COLUMN and RENAME INDEX rename no table."""
    after = {following.upper() for word, following in pairwise(words) if word.upper() == "RENAME"}
    return {"RENAME"} if after and after <= {"COLUMN", "INDEX", "KEY"} else set()


def _words(text: str) -> list[str]:
    """The words and marks of a statement without its comments."""
    found = _TOKEN.findall(text)
    return [word for word in found if not word.startswith(("/*", "*/", "-- ", "#", "--\t"))]


def _name(word: str) -> str:
    return word.strip('`"').replace("``", "`").lower()


def _names(words: list[str], ran_in: str, schema: str, table: str) -> bool:
    """Whether one of the words is the table."""
    for place, word in enumerate(words):
        if _name(word) != table.lower() or word.startswith("'"):
            continue
        if place + 1 < len(words) and words[place + 1] == ".":
            continue
        qualified = place > 1 and words[place - 1] == "."
        if (_name(words[place - 2]) if qualified else ran_in.lower()) == schema.lower():
            return True
    return False
