"""A folder that is changed at random, and what a reader of it should see."""

from __future__ import annotations

import csv
import io
import os
import random
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.connectors import registry
from velostream.connectors.base import SourceContext
from velostream.connectors.file.source import FileSource
from velostream.connectors.properties import build_options
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = ("a", "b", "c", "d")
PLACE = ("_timestamp", "_partition", "_offset")
TEXTS = pa.schema([(name, pa.string()) for name in COLUMNS])
AB = pa.schema([("a", pa.string()), ("b", pa.string())])


def now() -> datetime:
    return datetime.now(UTC)


def open_source(
    path: str, spool: Path, *, schema=TEXTS, once=False, table=True, clock=now, **properties: str
) -> FileSource:
    found = registry.by_scheme("file")
    given = {"file.debounce": "0s", **{name.replace("_", "."): value for name, value in properties.items()}}
    options = build_options(found.options, {**found.parse(Uri(f"file://{path}")), **given}, "file")
    context = SourceContext(
        spool=spool, schema=schema, declared=schema is not None, once=once, table=table, clock=clock
    )
    source = found.connector.source(Uri(f"file://{path}"), options, context)
    assert isinstance(source, FileSource)
    return source


class Reader:
    """Follows a source by its changes alone, and compares with its snapshot at every step."""

    def __init__(self, path: str, spool: Path, **how) -> None:
        self._open = lambda: open_source(path, spool, **how)
        self.source = self._open()
        self.offset = None
        self.rows: Counter[tuple] = Counter()
        self.placed: Counter[tuple] = Counter()
        self.bad: list = []

    def reopen(self) -> None:
        self.source.close()
        self.source = self._open()

    def step(self) -> bool:
        """One call of `latest`; whether something came."""
        latest = self.source.latest(self.offset)
        if latest == self.offset:
            return False
        start = None if self.offset is None else self.offset["spool"]
        self.rows.update(weighted(self.source, start, latest["spool"]))
        self.placed.update(weighted(self.source, start, latest["spool"], placed=True))
        self.bad += self.source.bad_rows(self.offset, latest)
        self.offset = latest
        self.rows = +self.rows if min(self.rows.values(), default=0) >= 0 else self.rows
        return True

    def settle(self) -> Counter[tuple]:
        while self.step() or self.source.unread:
            pass
        snapshot = weighted(self.source, None, self.offset["spool"])
        assert Counter({k: v for k, v in self.rows.items() if v}) == snapshot
        self.check_places()
        return snapshot

    def check_places(self) -> None:
        """Every row is where it was when it came, and no two are at the same place."""
        found = weighted(self.source, None, self.offset["spool"], placed=True)
        assert Counter({k: v for k, v in self.placed.items() if v}) == found
        places = [row[-len(PLACE) :] for row in found.elements()]
        assert len(set(places)) == len(places)


def reader_of(path: Path | str, tmp_path: Path, **how) -> Reader:
    return Reader(str(path), tmp_path / "spool", schema=AB, **how)


def keys(rows: Counter) -> list[str]:
    return sorted(row[0] for row in rows.elements())


def weighted(source: FileSource, start, end, *, placed: bool = False) -> Counter[tuple]:
    rows: Counter[tuple] = Counter()
    names = [*source.discover().names, *(PLACE if placed else ())]
    for batch in source.read("spool", start, end):
        for row in batch.to_pylist():
            rows[tuple(row[name] for name in names)] += row.get("_weight", 1)
    return Counter({row: weight for row, weight in rows.items() if weight})


def expected(paths) -> Counter[tuple]:
    """What the files hold, by Python's own CSV reader."""
    rows: Counter[tuple] = Counter()
    for path in paths:
        text = path.read_bytes().decode("utf-8-sig", errors="surrogateescape")
        records = [r for r in csv.reader(io.StringIO(text, newline=""), strict=False) if r]
        # A header alone without its line end is not yet taken for one.
        for record in records[1:]:
            by_name = dict(zip(records[0], record, strict=False))
            whole = not any("\udc80" <= c <= "\udcff" for c in "".join(record))
            if len(record) == len(records[0]) and whole:
                rows[tuple(by_name.get(name) or None for name in COLUMNS)] += 1
    return rows


class Folder:
    """Files under random changes; every change leaves each file a readable CSV."""

    def __init__(self, folder: Path, seed: int, several: bool) -> None:
        folder.mkdir()
        self.folder = folder
        self.random = random.Random(seed)
        self.several = several
        self.count = 0
        self.create()

    @property
    def paths(self) -> list[Path]:
        return sorted(self.folder.glob("*.csv"))

    def change(self) -> str:
        changes = [
            self.append,
            self.append,
            self.append_unfinished,
            self.edit,
            self.insert,
            self.remove,
            self.truncate,
            self.rewrite,
            self.replace,
            self.new_header,
            self.touch,
            self.line_ends,
        ]
        if self.several:
            changes += [self.create, self.create, self.rename, self.delete, self.copy]
        change = self.random.choice(changes)
        change()
        return change.__name__

    def create(self) -> None:
        self.count += 1
        path = self.folder / f"f{self.count:03d}.csv"
        mark = self.random.choice([b"", b"", b"\xef\xbb\xbf"])
        path.write_bytes(mark + b"a,b,c\n" + b"".join(self.line(3) for _ in range(self.random.randrange(6))))

    def pick(self) -> Path:
        if not self.paths:
            self.create()
        return self.random.choice(self.paths)

    def line(self, width: int) -> bytes:
        values = [
            "1",
            "22",
            "x",
            "",
            '"q,r"',
            '"two\nlines"',
            '"say ""hi"""',
            "é",
            str(self.random.randrange(5)),
        ]
        return ",".join(["k", *(self.random.choice(values) for _ in range(width - 1))]).encode() + b"\n"

    def width(self, path: Path) -> int:
        return len(path.read_bytes().split(b"\n", 1)[0].split(b","))

    def append(self) -> None:
        path = self.pick()
        with path.open("ab") as out:
            out.write(b"".join(self.line(self.width(path)) for _ in range(self.random.randrange(1, 4))))

    def append_unfinished(self) -> None:
        path = self.pick()
        with path.open("ab") as out:
            out.write(self.line(self.width(path)).rstrip(b"\n"))

    def lines(self, path: Path) -> list[bytes]:
        """Records, and what stands after the last line end."""
        records, open_record = [], b""
        for line in path.read_bytes().split(b"\n"):
            open_record += line
            if open_record.count(b'"') % 2 == 0:
                records.append(open_record)
                open_record = b""
            else:
                open_record += b"\n"
        assert not open_record
        return records

    def in_place(self, path: Path, lines: list[bytes]) -> None:
        with path.open("r+b") as out:
            out.write(b"\n".join(lines))
            out.truncate()

    def edit(self) -> None:
        path = self.pick()
        lines = self.lines(path)
        number = self.random.randrange(1, len(lines) + 1) - 1 or len(lines) - 1
        lines[number] = self.line(self.width(path)).rstrip(b"\n")
        self.in_place(path, lines)

    def insert(self) -> None:
        path = self.pick()
        lines = self.lines(path)
        lines.insert(self.random.randrange(1, len(lines) + 1), self.line(self.width(path)).rstrip(b"\n"))
        self.in_place(path, lines)

    def remove(self) -> None:
        path = self.pick()
        lines = self.lines(path)
        if len(lines) > 2:
            del lines[self.random.randrange(1, len(lines) - 1)]
        self.in_place(path, lines)

    def truncate(self) -> None:
        path = self.pick()
        lines = self.lines(path)
        kept = lines[: self.random.randrange(1, len(lines) + 1)]
        if len(kept) > 1 and b'"' not in kept[-1]:
            kept[-1] = kept[-1][: len(kept[-1]) // 2]
        else:
            kept.append(b"")
        os.truncate(path, min(len(b"\n".join(kept)), path.stat().st_size))

    def rewrite(self) -> None:
        path = self.pick()
        width = self.width(path)
        head = path.read_bytes().split(b"\n", 1)[0]
        path.write_bytes(head + b"\n" + b"".join(self.line(width) for _ in range(self.random.randrange(5))))

    def replace(self) -> None:
        path = self.pick()
        other = path.with_suffix(".tmp")
        content = path.read_bytes()
        other.write_bytes(content + self.line(self.width(path)) if self.random.random() < 0.5 else content)
        other.replace(path)

    def new_header(self) -> None:
        path = self.pick()
        _, _, rest = path.read_bytes().partition(b"\n")
        header = self.random.choice([b"a,b,c", b"c,b,a", b"a,b,d", b"a,b,c,d"])
        path.write_bytes(header + b"\n" + rest)

    def touch(self) -> None:
        self.pick().touch()

    def line_ends(self) -> None:
        path = self.pick()
        content = path.read_bytes().replace(b"\r\n", b"\n")
        path.write_bytes(content.replace(b"\n", b"\r\n") if self.random.random() < 0.5 else content)

    def rename(self) -> None:
        self.count += 1
        self.pick().rename(self.folder / f"f{self.count:03d}.csv")

    def delete(self) -> None:
        self.pick().unlink()

    def copy(self) -> None:
        self.count += 1
        content = self.pick().read_bytes()
        (self.folder / f"f{self.count:03d}.csv").write_bytes(content)
