"""Where a column that only grows has come to, and which rows were there then."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.databases.text_rows import Bad, Decoded, key_text
from velostream.disk.full_disk import storing
from velostream.disk.sealed_json import replace_file, seal, unseal
from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence
    from pathlib import Path

MOST_RECOGNISED = 20_000
"""Rows with the last value that are recognised when they come again: each poll asks for them."""
_KEPT = "newest-{}.json"


@dataclass(frozen=True)
class Since:
    """Where the last answer ended."""

    value: str
    """The last value of the column that grows, as text."""
    known: Mapping[str, str] | None
    """What the rows held that had this value, by what identifies each; None: they are not recognised."""

    @property
    def again(self) -> int:
        """How many rows of an answer are not new, if rows with this value are asked for again."""
        return len(self.known or ())

    def sign(self, *, keyed: bool) -> str:
        """How the column that grows is compared with the value, as SQL.

        Rows that have it come again, unless that would double them.
        """
        return ">=" if keyed or self.known is not None else ">"


class Newest:
    """Takes an answer, batch after batch, and leaves out what the log has."""

    def __init__(self, column: str | None, key: Sequence[str], since: Since | None) -> None:
        self._column, self._key = column, key
        self._since = since
        self._before: pa.Scalar | None = None
        self._last: pa.Scalar | None = None
        self._known: dict[str, str] | None = dict((since.known or {}) if since is not None else {})
        """The rows that have the last value; None where they are not recognised."""
        if since is not None and since.known is None:
            self._known = None
        self._counts: dict[str, int] = {}
        """How many rows of each contents have come, of those without a key."""

    @property
    def unrecognised(self) -> bool:
        """Whether rows with the last value are not recognised when they come again."""
        return self._known is None

    @property
    def since(self) -> Since | None:
        """Where the answer ended; None where nothing has come yet."""
        if self._last is None:
            return self._since
        return Since(self._last.cast(pa.string()).as_py(), self._known)

    def take(self, found: Decoded) -> Decoded:
        """The rows of a batch that the log does not have."""
        if self._column is None:
            return found
        values = found.columns[self._column]
        if self._since is not None and self._last is None:
            self._last = self._before = pa.scalar(self._since.value).cast(values.type)
        newest = self._newest(values)
        if newest is None:
            return found
        if pa.types.is_string(values.type):
            # Only the database knows which texts are equal to it: none is recognised.
            self._last, self._known = newest, None
            return found
        new = self._recognise(found, values) if self._before is not None else found
        if self._last is None or _beyond(newest, self._last):
            self._last, self._known, self._counts = newest, {}, {}
            self._note(found, values)
        elif self._before is None or not self._last.equals(self._before):
            self._note(found, values)
        return new

    def _newest(self, values: pa.Array) -> pa.Scalar | None:
        """The largest value; of texts, which come in the order that only the database knows, the last."""
        if pa.types.is_string(values.type):
            there = values.drop_null()
            return there[-1] if len(there) else None
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            raise SourceConfigError(
                f'column "{self._column}" holds NaN, after which no value comes',
                hint='leave such rows out with "where", or grow by another "incremental.column"',
            )
        largest = pc.max(values)
        return largest if largest.is_valid else None

    def _recognise(self, found: Decoded, values: pa.Array) -> Decoded:
        """Leave out rows that had this value before, and note those that are new."""
        if not self._last_is_before() or self._known is None:
            return found
        at = np.flatnonzero(pc.equal(values, self._before).fill_null(fill_value=False).to_numpy(False))
        named = self._named(found, at)
        come = [row for row, (name, holds) in zip(at, named, strict=True) if self._known.get(name) != holds]
        self._known.update(named)
        self._limit()
        if len(come) == len(at):
            return found
        stays = np.ones(len(values), dtype=bool)
        stays[at] = False
        stays[come] = True
        return _filtered(found, stays)

    def _last_is_before(self) -> bool:
        return self._last is not None and self._before is not None and self._last.equals(self._before)

    def _note(self, found: Decoded, values: pa.Array) -> None:
        """Remember the rows that have the last value."""
        if self._known is None:
            return
        at = np.flatnonzero(pc.equal(values, self._last).fill_null(fill_value=False).to_numpy(False))
        if len(self._known) + len(at) > MOST_RECOGNISED:
            self._known = None
            return
        self._known.update(self._named(found, at))

    def _limit(self) -> None:
        if self._known is not None and len(self._known) > MOST_RECOGNISED:
            self._known = None

    def _named(self, found: Decoded, at: Any) -> list[tuple[str, str]]:
        """What identifies each of some rows, and what it holds."""
        chosen = {name: column.take(pa.array(at)) for name, column in found.columns.items()}
        lists = [column.to_pylist() for column in chosen.values()]
        raw = [found.bad[row].raw if row in found.bad else None for row in at]
        holds = [digest((*row, what)) for *row, what in zip(*lists, raw, strict=True)]
        if not self._key:
            return [(name, "") for name in counted(holds, self._counts)]
        keys = key_text([chosen[name] for name in self._key]).to_pylist()
        return [(digest(key), held) for key, held in zip(keys, holds, strict=True)]


class Kept:
    """Rows with the last value, kept beside the log for the next poll, also after a crash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._since: tuple[int, Since | None] | None = None

    def before(self, end: int, since: Since | None) -> None:
        """Keep what belongs to the log when its end is row `end`, which it is not yet."""
        path = self._path(end)
        with storing(path):
            replace_file(path, seal({"known": since.known if since is not None else None}))
        self._since = end, since

    def after(self, end: int) -> None:
        """The log has its end there now: remove what belongs to another."""
        for path in self._folder.glob(_KEPT.format("*")):
            if path != self._path(end):
                path.unlink(missing_ok=True)

    def of(self, end: int, last: str | None) -> Since | None:
        """What belongs to an end of the log, whose position is `last`."""
        if self._since is not None and self._since[0] == end:
            return self._since[1]
        if last is None:
            return None
        try:
            known = unseal(self._path(end).read_bytes()).value["known"]
        except (FileNotFoundError, ValueError):
            known = None
        return Since(last, known)

    def _path(self, end: int) -> Path:
        return self._folder / _KEPT.format(f"{end:020d}")


def _beyond(newest: pa.Scalar, last: pa.Scalar) -> bool:
    return bool(pc.greater(newest, last).as_py())


def _filtered(found: Decoded, stays: Any) -> Decoded:
    numbers = np.cumsum(stays) - 1
    bad: dict[int, Bad] = {int(numbers[row]): why for row, why in found.bad.items() if stays[row]}
    mask = pa.array(stays)
    return Decoded({name: column.filter(mask) for name, column in found.columns.items()}, bad)


def digest(value: object) -> str:
    """A short text that is equal for equal values, and for no others that there are."""
    return hashlib.blake2b(repr(value).encode(), digest_size=16).hexdigest()


def counted(contents: Sequence[str], seen: MutableMapping[str, int]) -> list[str]:
    """The contents of each row, and how many rows before it are equal: equal rows are told apart."""
    made = []
    for each in contents:
        number = seen[each] = seen.get(each, 0) + 1
        made.append(f"{each}#{number}")
    return made
