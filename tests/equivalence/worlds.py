"""Relations that change at random: a file, a folder of files, a table filled by hand."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from velostream.runtime.instance import Instance

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("grp", pa.string()),
        ("n", pa.int64()),
        ("price", pa.decimal128(12, 2)),
        ("ratio", pa.float64()),
        ("flag", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
COLUMNS = "id BIGINT, grp STRING, n BIGINT, price DECIMAL(12,2), ratio DOUBLE, flag BOOLEAN, at TIMESTAMP"
GROUPS = ("a", "b", "c", 'd,"quoted"', "two\nlines", "ü €", None)
DAY = datetime(2024, 2, 28, tzinfo=UTC)

Row = dict[str, Any]


class Maker:
    """Random rows, each with an id of its own."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next = 0

    def row(self, number: int | None = None) -> Row:
        """A row with the given id, or the next."""
        if number is None:
            self._next += 1
            number = self._next
        rng = self._rng
        return {
            "id": number,
            "grp": rng.choice(GROUPS),
            "n": rng.choice([None, *range(0, 100, 7)]),
            "price": None if rng.random() < 0.1 else Decimal(rng.randrange(-5000, 20000)).scaleb(-2),
            "ratio": rng.choice([None, 0.0, 1.5e0, -2.25, rng.uniform(-1e6, 1e6)]),
            "flag": rng.choice([True, False, None]),
            "at": DAY + timedelta(seconds=rng.randrange(200000), microseconds=rng.choice([0, 1, 999999])),
        }

    def rows(self, count: int) -> list[Row]:
        return [self.row() for _ in range(count)]


def as_arrow(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def as_csv(rows: list[Row], header: bool = True) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(SCHEMA.names)
    for row in rows:
        writer.writerow([_text(row[name]) for name in SCHEMA.names])
    return out.getvalue()


def as_jsonl(rows: list[Row], header: bool = True) -> str:
    return "".join(_json(row) + "\n" for row in rows)


def _json(row: Row) -> str:
    plain = {name: value for name, value in row.items() if name not in ("price", "at")}
    price = "null" if row["price"] is None else str(row["price"])
    at = json.dumps(_text(row["at"]))
    return f'{json.dumps(plain, ensure_ascii=False)[:-1]}, "price": {price}, "at": {at}}}'


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return repr(value) if isinstance(value, float) else str(value)


@dataclass
class World:
    """A relation called `src`, the rows it has now, and ways to change it."""

    folder: Path
    rng: random.Random
    maker: Maker = field(init=False)

    def __post_init__(self) -> None:
        self.maker = Maker(self.rng)
        self.folder.mkdir(parents=True)

    def create(self, database: Instance) -> None:
        """Make the relation with its first rows."""
        raise NotImplementedError

    def rows(self) -> list[Row]:
        """What it has now."""
        raise NotImplementedError

    def step(self, database: Instance | None) -> str:
        """Change it somehow; the database is None while it is closed. Returns what was done."""
        ways = self.ways(database)
        name = self.rng.choice(sorted(ways))
        ways[name]()
        return name

    def ways(self, database: Instance | None) -> dict[str, Callable[[], None]]:
        raise NotImplementedError

    def _some(self, rows: list[Row]) -> list[int]:
        count = self.rng.randint(1, max(1, len(rows) // 4))
        return sorted(self.rng.sample(range(len(rows)), min(count, len(rows))))

    def _edited(self, rows: list[Row]) -> list[Row]:
        edited = list(rows)
        for index in self._some(rows):
            edited[index] = self.maker.row(edited[index]["id"])
        return edited

    def _thinned(self, rows: list[Row]) -> list[Row]:
        gone = set(self._some(rows))
        return [row for index, row in enumerate(rows) if index not in gone]


class FileWorld(World):
    """One watched file: appended to, edited, truncated, replaced."""

    suffix = "csv"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._write_rows = as_csv if self.suffix == "csv" else as_jsonl
        self._path = self.folder / f"watched.{self.suffix}"
        self._rows: list[Row] = []

    def create(self, database: Instance) -> None:
        self._replace(self.maker.rows(self.rng.randint(5, 30)))
        database.sql(
            f"CREATE SOURCE src ({COLUMNS}) FROM file://{self._path} WITH ('file.debounce' = '50ms')"
        )

    def rows(self) -> list[Row]:
        return self._rows

    def ways(self, database: Instance | None) -> dict[str, Callable[[], None]]:
        rows = self._rows
        return {
            "append": lambda: self._append(self.maker.rows(self.rng.randint(1, 12))),
            "append more": lambda: self._append(self.maker.rows(self.rng.randint(1, 12))),
            "edit": lambda: self._rewrite(self._edited(rows)),
            "insert": lambda: self._rewrite(self._inserted()),
            "delete lines": lambda: self._rewrite(self._thinned(rows)),
            "truncate": lambda: self._rewrite(rows[: len(rows) // 2]),
            "empty": lambda: self._rewrite([]),
            "replace": lambda: self._replace(self.maker.rows(self.rng.randint(0, 20))),
            "edit and append": lambda: self._rewrite(self._edited(rows) + self.maker.rows(3)),
            "touch": self._path.touch,
        }

    def _inserted(self) -> list[Row]:
        at = self.rng.randint(0, len(self._rows))
        return [*self._rows[:at], *self.maker.rows(2), *self._rows[at:]]

    def _append(self, rows: list[Row]) -> None:
        with self._path.open("a", encoding="utf-8") as out:
            out.write(self._write_rows(rows, header=False))
        self._rows = self._rows + rows

    def _rewrite(self, rows: list[Row]) -> None:
        self._path.write_text(self._write_rows(rows), encoding="utf-8")
        self._rows = rows

    def _replace(self, rows: list[Row]) -> None:
        """Write another file and rename it over this one."""
        other = self.folder / "other"
        other.write_text(self._write_rows(rows), encoding="utf-8")
        other.replace(self._path)
        self._rows = rows


class LinesWorld(FileWorld):
    """The same with a JSON object per line."""

    suffix = "jsonl"


class GlobWorld(World):
    """Files that come, change, are renamed and go."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._files: dict[str, list[Row]] = {}
        self._made = 0

    def create(self, database: Instance) -> None:
        for _ in range(3):
            self._add()
        pattern = self.folder / "part-*.csv"
        database.sql(f"CREATE SOURCE src ({COLUMNS}) FROM file://{pattern} WITH ('file.debounce' = '50ms')")

    def rows(self) -> list[Row]:
        return [row for name in sorted(self._files) for row in self._files[name]]

    def ways(self, database: Instance | None) -> dict[str, Callable[[], None]]:
        ways: dict[str, Callable[[], None]] = {"add": self._add, "add another": self._add}
        if self._files:
            name = self.rng.choice(sorted(self._files))
            rows = self._files[name]
            ways |= {
                "edit": lambda: self._write(name, self._edited(rows)),
                "append": lambda: self._write(name, rows + self.maker.rows(4)),
                "thin": lambda: self._write(name, self._thinned(rows)),
                "rename": lambda: self._rename(name),
                "swap": lambda: self._swap(name),
            }
        if len(self._files) > 1:
            ways["remove"] = lambda: self._remove(name)
        return ways

    def _name(self) -> str:
        self._made += 1
        return f"part-{self.rng.randrange(10)}{self._made:04d}.csv"

    def _add(self) -> None:
        self._write(self._name(), self.maker.rows(self.rng.randint(0, 10)))

    def _write(self, name: str, rows: list[Row]) -> None:
        (self.folder / name).write_text(as_csv(rows), encoding="utf-8")
        self._files[name] = rows

    def _remove(self, name: str) -> None:
        (self.folder / name).unlink()
        del self._files[name]

    def _rename(self, name: str) -> None:
        new = self._name()
        (self.folder / name).rename(self.folder / new)
        self._files[new] = self._files.pop(name)

    def _swap(self, name: str) -> None:
        """Remove one and add one at the same time."""
        self._remove(name)
        self._add()


class HandWorld(World):
    """A table changed with INSERT, UPDATE and DELETE."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rows: dict[int, Row] = {}

    def create(self, database: Instance) -> None:
        database.sql(f"CREATE TABLE src ({COLUMNS.replace('id BIGINT', 'id BIGINT PRIMARY KEY')})")
        self._insert(database, 20)

    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def ways(self, database: Instance | None) -> dict[str, Callable[[], None]]:
        if database is None:
            return {"nothing": lambda: None}
        return {
            "insert": lambda: self._insert(database, self.rng.randint(1, 10)),
            "replace": lambda: self._replace(database),
            "update": lambda: self._update(database),
            "update some": lambda: self._update_where(database),
            "delete": lambda: self._delete(database),
            "delete where": lambda: self._delete_where(database),
            "empty and fill": lambda: self._refill(database),
        }

    def _insert(self, database: Instance, count: int) -> None:
        rows = self.maker.rows(count)
        database.table("src").insert(as_arrow(rows))
        self._rows |= {row["id"]: row for row in rows}

    def _replace(self, database: Instance) -> None:
        rows = [self.maker.row(number) for number in self._ids()] + self.maker.rows(2)
        database.table("src").upsert(as_arrow(rows))
        self._rows |= {row["id"]: row for row in rows}

    def _update(self, database: Instance) -> None:
        for number in self._ids():
            database.sql("UPDATE src SET n = coalesce(n, 0) + 1, grp = 'a' WHERE id = :id", {"id": number})
            row = self._rows[number]
            self._rows[number] = row | {"n": (row["n"] or 0) + 1, "grp": "a"}

    def _update_where(self, database: Instance) -> None:
        database.sql("UPDATE src SET price = price + 1.25 WHERE n > 30")
        for number, row in self._rows.items():
            if row["n"] is not None and row["n"] > 30 and row["price"] is not None:
                self._rows[number] = row | {"price": row["price"] + Decimal("1.25")}

    def _delete(self, database: Instance) -> None:
        for number in self._ids():
            database.sql("DELETE FROM src WHERE id = ?", [number])
            del self._rows[number]

    def _delete_where(self, database: Instance) -> None:
        database.sql("DELETE FROM src WHERE grp = 'b' AND flag")
        self._rows = {i: r for i, r in self._rows.items() if not (r["grp"] == "b" and r["flag"])}

    def _refill(self, database: Instance) -> None:
        database.sql("DELETE FROM src")
        self._rows = {}
        self._insert(database, self.rng.randint(0, 15) or 1)

    def _ids(self) -> list[int]:
        known = sorted(self._rows)
        return self.rng.sample(known, min(len(known), self.rng.randint(1, 3)))


WORLDS: dict[str, type[World]] = {
    "file": FileWorld,
    "lines": LinesWorld,
    "glob": GlobWorld,
    "hand": HandWorld,
}
