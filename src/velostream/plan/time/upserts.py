"""Upserting sources: messages with keys, of which a later one replaces an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.plan.query.stateless import one_row_each, why_not_stateless
from velostream.plan.time.kept_rows import Kept, kept

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.model.changes import Messages
    from velostream.model.statements import Query


def message_key(query: Query, messages: Mapping[str, Messages | None]) -> str | None:
    """The system column by which rows replace each other; None unless the query only filters and projects."""
    tree = query.tree
    if len(query.sources) != 1 or query.tables or not isinstance(tree, exp.Select):
        return None
    name = query.sources[0].id
    found = messages.get(name)
    if found is None or why_not_stateless(tree) is not None or not one_row_each(tree, name):
        return None
    return found.key


def last_messages(
    query: Query,
    key: tuple[str, ...],
    messages: Mapping[str, Messages | None],
    own: tuple[str, ...] = (),
) -> Kept | None:
    """The query over the last row of each message key, which is kept as state beside the job.

    None where rows are only added, and where the last rows themselves are the result: without a key of its
    own, or by the source's own (`own`), which identifies the same rows as the message key.
    """
    plain = message_key(query, messages)
    if plain is not None and (not key or set(key) == set(own)):
        return None
    keys = {
        name: found.key
        for name, found in messages.items()
        if found is not None and (found.upserts or plain is not None)
    }
    return kept(query, keys) if keys else None
