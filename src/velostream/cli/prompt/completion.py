"""Completion at the prompt: keywords, functions, properties, sources, tables and their columns."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

_KEYWORDS = (
    "SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT JOIN LEFT RIGHT FULL INNER SEMI ANTI ON USING AS AND OR "
    "NOT NULL IS IN EXISTS BETWEEN LIKE CASE WHEN THEN ELSE END DISTINCT UNION ALL WITH CREATE TABLE STREAM "
    "SOURCE VIEW MATERIALIZED REPLACE PRIMARY KEY DEFAULT INSERT INTO VALUES UPDATE SET DELETE TRUNCATE "
    "ALTER RENAME TO ADD COLUMN DROP IF SHOW TABLES STREAMS "
    "SOURCES VIEWS JOBS FUNCTIONS CONNECTORS PROPERTIES DESCRIBE EXPLAIN PAUSE RESUME STOP JOB EMIT CHANGES "
    "FINAL EVERY WINDOW TUMBLING SLIDING SESSION INTERVAL PARTITION OVER ROWS ASC DESC CAST INT BIGINT "
    "DECIMAL STRING BOOLEAN TIMESTAMP DATE DOUBLE REPLAY DEAD LETTERS TRUE FALSE"
)
KEYWORDS = tuple(_KEYWORDS.split())

_WORD = re.compile(r"[\w.:/\\]*$")
_IN_WITH = re.compile(r"\bWITH\s*\([^()]*$", re.IGNORECASE)
_AFTER_FROM = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE|DESCRIBE|CREATE)\s+[\w.:/\\`]*$", re.IGNORECASE)


class SqlCompleter(Completer):
    """Proposes completions at the cursor; `relations` returns the current names and columns."""

    def __init__(self, relations: Callable[[], Mapping[str, list[str]]]) -> None:
        self._relations = relations

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """See prompt_toolkit."""
        before = document.text_before_cursor
        match = _WORD.search(before)
        word = match[0] if match else ""
        if not word and not complete_event.completion_requested:
            return
        for text, kind in self._candidates(before, word):
            if text.lower().startswith(word.lower()) and text != word:
                yield Completion(text, start_position=-len(word), display_meta=kind)

    def _candidates(self, before: str, word: str) -> Iterator[tuple[str, str]]:
        if _IN_WITH.search(before):
            yield from ((name, "property") for name in _properties())
            return
        relations = self._relations()
        if _AFTER_FROM.search(before):
            yield from ((name, "table") for name in relations)
            yield from ((f"{scheme}://", "source") for scheme in _schemes())
            return
        prefix, dot, _ = word.rpartition(".")
        if dot:
            columns = relations.get(prefix) or _aliased(before, prefix, relations)
            yield from ((f"{prefix}.{column}", "column") for column in columns)
            return
        mentioned = {name for name in relations if re.search(rf"\b{re.escape(name)}\b", before)}
        for name in mentioned or relations:
            yield from ((column, f"column of {name}") for column in relations[name])
        yield from ((name, "table") for name in relations)
        upper = word.isupper() or not word
        yield from ((key if upper else key.lower(), "keyword") for key in KEYWORDS)
        yield from ((name, "function") for name in _functions())


def _aliased(before: str, alias: str, relations: Mapping[str, list[str]]) -> list[str]:
    found = re.search(rf"\b(\w+)\s+(?:AS\s+)?{re.escape(alias)}\b", before, re.IGNORECASE)
    return relations.get(found[1], []) if found else []


@cache
def _functions() -> tuple[str, ...]:
    from velostream.sql.functions import functions

    return tuple(sorted(functions()))


@cache
def _properties() -> tuple[str, ...]:
    from velostream.connectors.registry import property_reference

    return tuple(
        sorted({f'"{item.name}"' for item in property_reference()} | {i.name for i in property_reference()})
    )


@cache
def _schemes() -> tuple[str, ...]:
    from velostream.connectors.registry import schemes

    return schemes()
