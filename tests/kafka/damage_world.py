"""A data directory with every kind of file in it, and ways to harm a copy of it."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import kafka_clients as clients
import pyarrow as pa
import pyarrow.parquet as pq

from velostream.config import load
from velostream.engine.replay.intent import Pending
from velostream.errors import DataDirError, VelostreamError
from velostream.model.jobs import JobState
from velostream.model.statements import CreateTable, CreateView
from velostream.runtime.instance import Instance

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping
    from pathlib import Path

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=40)

KINDS = {
    "catalogue": r"catalog\.json",
    "copy of the catalogue": r"copies/catalog-\d{10}\.json",
    "secrets": r"secrets(\.copy)?\.json",
    "description": r"{table}/table\.json",
    "readers": r"{table}/readers\.json",
    "note of the log": r"{table}/closed\.json",
    "log": r"{table}/log-\d{16}-\d{16}\.frames",
    "snapshot": r"{table}/snapshot-\d{16}\.frames",
    "position of delta": r"{table}/position\.json",
    "log of delta": r"{table}/rows/_delta_log/\d{20}\.json",
    "checksum of delta": r"{table}/rows/_delta_log/\d{20}\.crc",
    "rows of delta": r"{table}/rows/(?!_).*\.(parquet|bin)",
    "checksum of rows of delta": r"{table}/rows/(?:_delta_log/)?\.[^/]*\.crc",
    "journal": r"{source}/journal",
    "note of the journal": r"{source}/journal\.closed",
    "segment": r"{source}/segments/\d{9}\.(txt|parquet)",
    "index": r"{source}/segments/\d{9}\.txt\.index",
    "instants": r"{source}/segments/\d{9}\.txt\.instants",
    "kafka": r"{source}/kafka(\.copy)?\.json",
    "created": r"{source}/created(\.copy)?\.json",
    "journal of the sink": r"jobs/[^/]+/sink/journal",
    "note of the sink": r"jobs/[^/]+/sink/journal\.closed",
    "beginning of the sink": r"jobs/[^/]+/sink/begin(\.copy)?\.json",
    "intent of the sink": r"jobs/[^/]+/sink/intent",
    "identity of the sink": r"jobs/[^/]+/sink/identity(\.copy)?\.json",
    "replay": r"jobs/[^/]+/replay(\.copy)?\.json",
}
"""Every kind of file that a data directory keeps, as a pattern of its path."""
PASSING = re.compile(
    r"lock|socket|logs/.*|tmp/.*|warehouse/.*|jobs/[^/]+/checkpoint/.*|.*/staging/.*|.*/_change_data/.*"
)
"""What is made anew at every start."""
_PARTS = {
    "{table}": r"(tables|jobs/[^/]+/live)/[^/]+",
    "{source}": r"jobs/[^/]+/sources/[^/]+",
}


TIMED = """
    WITH ("event.time.column" = "at", "max_out_of_orderness_ms" = "600000", "file.debounce" = "1ms")
"""
STATEMENTS = """
CREATE SOURCE orders (id INT, user STRING, amount DECIMAL(10,2), at TIMESTAMP) FROM FILES/orders.csv TIMED;
CREATE TABLE people (name STRING PRIMARY KEY, age INT);
CREATE TABLE notes (text STRING);
CREATE TABLE beats (name STRING PRIMARY KEY, n INT) WITH ("retention" = "3h");
CREATE VIEW grown AS SELECT * FROM people WHERE age > 35;
CREATE TABLE totals AS
    SELECT user, SUM(amount) AS total, COUNT(*) AS n, MAX(amount) AS most FROM orders GROUP BY user;
CREATE TABLE quotes AS SELECT * FROM FILES/quotes.parquet WITH ("file.debounce" = "1ms");
CREATE TABLE recent AS SELECT id, user FROM orders WHERE at > now() - INTERVAL 30 MINUTES;
CREATE TABLE joined AS SELECT t.user, t.total, p.age FROM totals t JOIN people p ON t.user = p.name;
CREATE SOURCE hushed (a INT) FROM kafka://hushed WITH ("sasl.password" = "a s3cret of the world");
CREATE TABLE made AS
    SELECT COUNT(*) AS n, SUM(quantity) AS q FROM datagen://trades?rows_per_second=1000&rows=50&seed=3;
CREATE TABLE latest AS SELECT v FROM KAFKA/damage-upserts;
INSERT INTO FILES/out.csv SELECT id, amount FROM orders WITH ("on.error" = "skip");
INSERT INTO KAFKA/damage-written SELECT name, age FROM people EMIT CHANGES WITH ("delivery" = "exactly_once");
"""
"""What has a file of every kind."""
MORE = """
CREATE SOURCE visits (user STRING, page STRING, at TIMESTAMP) FROM FILES/visits.jsonl TIMED;
CREATE TABLE pages AS SELECT * FROM FILES/pages/*.jsonl WITH ("file.debounce" = "1ms");
CREATE TABLE minutes AS
    SELECT user, COUNT(*) AS n, window_start FROM orders WINDOW TUMBLING(INTERVAL '10' MINUTE) GROUP BY user;
CREATE TABLE moving AS
    SELECT id, SUM(amount) OVER (PARTITION BY user ORDER BY at ROWS 2 PRECEDING) AS s FROM orders;
CREATE TABLE pairs AS
    SELECT o.id, v.page FROM orders o JOIN visits v ON o.user = v.user WITHIN INTERVAL '10' MINUTE;
CREATE TABLE fading AS SELECT user, COUNT(*) AS n FROM orders GROUP BY user WITH ("retention" = "2 hours");
CREATE TABLE counted AS
    SELECT k, COUNT(*) AS n, COUNT(DISTINCT v) AS d FROM KAFKA/damage-appended GROUP BY k;
INSERT INTO FILES/parts/ SELECT id, user FROM orders WITH ("sink.format" = "jsonl", "on.error" = "skip");
CREATE TABLE large AS SELECT user, total FROM totals WITH ("table.storage" = "delta");
"""
"""What keeps files of the same kinds for other reasons, and a table in Delta Lake."""
OUTPUTS = ("out.csv", "parts", "damage-written")
TOPICS = ("damage-upserts", "damage-appended", "damage-written")


def kind_of(path: str) -> str | None:
    """The kind of a file, None for what is made anew; fails for a kind that nobody has thought of."""
    if PASSING.fullmatch(path):
        return None
    for kind, pattern in KINDS.items():
        for part, stands_for in _PARTS.items():
            pattern = pattern.replace(part, stands_for)
        if re.fullmatch(pattern, path):
            return kind
    raise AssertionError(
        f"{path} is a new kind of file: say in KINDS what it is, and see that harm to it shows"
    )


@dataclass(frozen=True)
class Harm:
    """What is done to one file."""

    path: str
    kind: str
    name: str
    content: bytes | None
    """What it holds then; None: it is gone."""

    def __str__(self) -> str:
        return f"{self.name} of {self.path}"


@dataclass
class Results:
    """What a directory gives: rows of tables, rows written, and what was refused."""

    rows: dict[str, Counter[Any]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    told: str = ""


class World:
    """Built once, stopped, and then opened again and again from copies."""

    def __init__(self, root: Path, address: str, *, whole: bool) -> None:
        self.root = root
        self.address = address
        self._text = STATEMENTS + (MORE if whole else "")
        self.data = root / "data"
        self.older = root / "older"
        self.before: dict[str, bytes] = {}
        """The files that sinks had written when the directory was stopped."""

    # --- building -----------------------------------------------------------------------------------

    def statements(self) -> list[str]:
        text = self._text
        for name, stands_for in (
            ("FILES", f"file://{self.root}"),
            ("KAFKA", f"kafka://{self.address}"),
            ("TIMED", TIMED),
        ):
            text = text.replace(name, stands_for)
        return [each for each in text.split(";\n") if each.strip()]

    def build(self) -> None:
        """Everything is created, changes a few times, and is stopped; a copy of an earlier time is kept."""
        for topic in TOPICS:
            clients.make_topic(self.address, topic, 1)
        for folder in ("pages", "parts"):
            (self.root / folder).mkdir()
        self._write_sources(1)
        with self._opened(self.data, NOON) as database:
            for statement in self.statements():
                database.sql(statement)
            database.sql("INSERT INTO people VALUES ('ann', 30), ('bob', 40)")
            database.sql("INSERT INTO notes VALUES ('one'), ('one'), ('two')")
            database.sql("INSERT INTO beats VALUES ('x', 1), ('y', 2)")
            self._settle(database)
            for table in ("people", "totals"):
                database.table(table).checkpoint()
        copy(self.data, self.older)
        with self._opened(self.data, NOON) as database:
            for number in range(2, 6):
                self._write_sources(number)
                self._settle(database)
            database.sql("INSERT INTO people VALUES ('cat', 50)")
            database.sql("DELETE FROM notes WHERE text = 'two'")
            database.table("people").checkpoint()
            database.sql("UPDATE people SET age = 41 WHERE name = 'bob'")
            letters, job = database.dead_letters, database.job("totals").id
            assert letters is not None
            # As a replay of dead letters leaves it.
            Pending(database.directory.job(job), job, letters).done()
            self._settle(database)
        for path in (self.root / "out.csv", *(self.root / "parts").iterdir()):
            self.before[str(path.relative_to(self.root))] = path.read_bytes()
        # What happens while nobody looks: rows come, others go and change.
        self._write_sources(20)

    def _write_sources(self, number: int) -> None:
        users = ("ann", "bob", "cat")
        minutes = [n * 2 + 20 for n in range(1, 3 * number + 1)]
        rows = [
            f"{n},{users[n % 3]},{n}.50,2026-05-01T{11 + at // 60}:{at % 60:02d}:00Z"
            for n, at in enumerate(minutes, start=1)
        ]
        if number > 10:
            rows = [*rows[:2], *rows[3:], "901,ann,100.00,2026-05-01T12:05:00Z"]
        rows.insert(1, "x,bad,zz,")
        # Lines that end in different ways need an index beside their segment.
        ends = ["\r\n" if number > 2 and n > 4 and n % 2 else "\n" for n in range(len(rows))]
        lines = ["id,user,amount,at\n", *(row + end for row, end in zip(rows, ends, strict=True))]
        self._put("orders.csv", "".join(lines).encode())
        visits = [
            f'{{"user":"{users[n % 2]}","page":"p{n}","at":"2026-05-01T11:{20 + n * 3 % 40}:00Z"}}\n'
            for n in range(number + 2)
        ]
        self._put("visits.jsonl", "".join(visits).encode())
        self._put(f"pages/{number % 4}.jsonl", f'{{"page":{number}}}\n'.encode() * 2)
        quotes = BytesIO()
        pq.write_table(pa.table({"symbol": ["A", "B"] * number, "price": list(range(2 * number))}), quotes)
        self._put("quotes.parquet", quotes.getvalue())
        upserts = [(f"k{number % 3}", {"v": number}), ("k9", {"v": number})]
        clients.produce(self.address, "damage-upserts", upserts)
        clients.produce(self.address, "damage-appended", [{"k": number % 2, "v": number // 2}] * 2)

    def _put(self, name: str, content: bytes) -> None:
        """Replace a file that is read: nobody sees half of it."""
        aside = self.root / "aside"
        aside.write_bytes(content)
        aside.rename(self.root / name)

    def _opened(self, folder: Path, now: datetime, *, resume: bool = True) -> Instance:
        return Instance(load(None, data_dir=folder), resume=resume, clock=lambda: now)

    def _settle(self, database: Instance) -> None:
        assert database.wait_idle(120), database.jobs()
        failed = [job for job in database.jobs() if job.state is JobState.FAILED]
        assert not failed, failed

    # --- harm ---------------------------------------------------------------------------------------

    def files(self) -> dict[str, str]:
        """Every durable file and its kind."""
        paths = [str(p.relative_to(self.data)) for p in sorted(self.data.rglob("*")) if p.is_file()]
        return {path: kind for path in paths if (kind := kind_of(path)) is not None}

    def harms(self, rng: random.Random, places: int) -> list[Harm]:
        """All that may happen to one file; of bits and lengths so many of each file."""
        files = self.files()
        found: list[Harm] = []
        for path, kind in files.items():
            whole = (self.data / path).read_bytes()
            kinds: dict[str, bytes | None] = {"deletion": None}
            if whole:
                kinds["emptying"] = b""
                for length in {0, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(places))} - {0}:
                    kinds[f"truncation to {length}"] = whole[:length]
                lines = whole.splitlines(keepends=True)
                if kind.startswith("journal") and len(lines) > 1:
                    kinds["truncation by a line"] = b"".join(lines[:-1])
                for _ in range(places + 1):
                    place, bit = rng.randrange(len(whole)), rng.randrange(8)
                    harmed = bytearray(whole)
                    harmed[place] ^= 1 << bit
                    kinds[f"flip of bit {bit} at {place}"] = bytes(harmed)
            old = self.older / path
            if old.is_file() and old.read_bytes() != whole:
                kinds["older version"] = old.read_bytes()
            others = [o for o, k in files.items() if k == kind and (self.data / o).read_bytes() != whole]
            if others:
                other = rng.choice(others)
                kinds[f"replacement by {other}"] = (self.data / other).read_bytes()
            found += [Harm(path, kind, name, content) for name, content in kinds.items()]
        folders = {str(parent) for path in files for parent in PurePath(path).parents[:-2]}
        return found + [Harm(path, "folder", "deletion", None) for path in sorted({*folders, "copies"})]

    # --- opening ------------------------------------------------------------------------------------

    def expected(self, folder: Path) -> tuple[Results, Results]:
        """What an unharmed copy gives when it is opened, and when all jobs have gone on."""
        self.restore_outputs()
        copy(self.data, folder)
        with self._opened(folder, LATER, resume=False) as database:
            first = self._results(database)
        with self._opened(folder, LATER) as database:
            self._settle(database)
            self._change_by_hand_later(database)
            self._settle(database)
            return first, self._results(database, outputs=True)

    def tried(self, harm: Harm, folder: Path, *, full: bool) -> tuple[Results, Results | None, set[str]]:
        """What a harmed copy gives: when it is opened, and when the jobs that the file is of have gone on."""
        self.restore_outputs()
        copy(self.data, folder)
        path = folder / harm.path
        if path.is_dir():
            shutil.rmtree(path)
        elif harm.content is None:
            path.unlink()
        else:
            path.write_bytes(harm.content)
        first = Results()
        try:
            with self._opened(folder, LATER, resume=False) as database:
                first = self._results(database)
                if not full:
                    return first, None, set()
                concerned = self._concerned(database, harm.path)
                for entry in database.catalog:
                    if entry.name in concerned and entry.job is not None:
                        database.jobs_by_name.resume(entry)
                assert database.wait_idle(120), database.jobs()
                self._change_by_hand_later(database)
                assert database.wait_idle(120), database.jobs()
                return first, self._results(database, outputs=True), concerned
        except DataDirError as exc:
            first.refused["directory"] = _text(exc)
            return first, None, set()
        finally:
            log = folder / "logs" / "velostream.log"
            first.told = log.read_text() if log.exists() else ""

    def with_older(self, table: str, folder: Path) -> dict[str, Counter[Any]]:
        """What comes of a table whose folder was put back from a copy, and of one that is built on it."""
        copy(self.data, folder)
        shutil.rmtree(folder / "tables" / table)
        shutil.copytree(self.older / "tables" / table, folder / "tables" / table)
        with self._opened(folder, LATER, resume=False) as database:
            for entry in database.catalog:
                if entry.name in ("totals", "joined"):
                    database.jobs_by_name.resume(entry)
            self._settle(database)
            joined = "SELECT t.user, t.total, p.age FROM totals t JOIN people p ON t.user = p.name"
            asked = Counter(map(_comparable, database.sql(joined).rows()))
            return {**self._results(database).rows, "the same asked": asked}

    def _change_by_hand_later(self, database: Instance) -> None:
        for statement in ("INSERT INTO notes VALUES ('later')", "DELETE FROM beats WHERE name = 'y'"):
            # A table may be refused, which its rows tell.
            with suppress(DataDirError):
                database.sql(statement)

    def _concerned(self, database: Instance, path: str) -> set[str]:
        """The statements that read or write what a file is of, and all that they are built on."""
        kind, name, *_ = [*path.split("/"), ""]
        names = {e.name for e in database.catalog if kind == "jobs" and e.job == name}
        if kind == "tables":
            names |= {name} | {e.name for e in database.catalog if name in _tables(e.statement)}
        grown = True
        while grown:
            below = {t for e in database.catalog if e.name in names for t in _tables(e.statement)}
            grown = not below <= names
            names |= below
        return names

    def _results(self, database: Instance, *, outputs: bool = False) -> Results:
        found = Results()
        tables = [e.name for e in database.catalog if isinstance(e.statement, CreateTable | CreateView)]
        for name in (*tables, "dead_letters"):
            try:
                rows = database.sql(f"SELECT * FROM `{name}`").rows()
                found.rows[name] = Counter(map(_comparable, rows))
            except VelostreamError as exc:
                found.refused[name] = _text(exc)
        for job in database.jobs_by_name:
            if job.state is JobState.FAILED:
                found.refused[job.name] = _text(job.error) if job.error is not None else str(job.info.reason)
        if outputs:
            for name, read in self._outputs().items():
                found.rows[name] = read()
        return found

    def _outputs(self) -> Mapping[str, Callable[[], Counter[Any]]]:
        def lines(*paths: Path) -> Counter[Any]:
            return Counter(line for path in paths if path.exists() for line in path.read_text().splitlines())

        def records() -> Counter[Any]:
            return Counter((r.key, r.value) for r in clients.consume(self.address, "damage-written"))

        file, parts = self.root / "out.csv", self.root / "parts"
        return dict(
            zip(OUTPUTS, (lambda: lines(file), lambda: lines(*parts.glob("part-*")), records), strict=True)
        )

    def restore_outputs(self) -> None:
        """Have the files of sinks as they were when the directory was stopped."""
        for path in (self.root / "parts").iterdir():
            if f"parts/{path.name}" not in self.before:
                path.unlink()
        for name, content in self.before.items():
            if not (self.root / name).exists() or (self.root / name).read_bytes() != content:
                _rewrite(self.root / name, content)


def judged(
    harm: Harm, first: Results, then: Results | None, concerned: set[str], expected: tuple[Results, Results]
) -> str:
    """What came of it: same, repaired or refused; fails when rows are wrong, or a refusal names no file."""
    refused = {**first.refused, **(then.refused if then is not None else {})}
    for name, rows in first.rows.items():
        assert rows == expected[0].rows[name], f"{harm}: {name} has other rows when it is opened"
    # Jobs that the file is not of do not run, so what they make stays as it was.
    written = {name for name in OUTPUTS if any(job.startswith(f"insert-{name}") for job in concerned)}
    silent = {name for name in OUTPUTS if any(job.startswith(f"insert-{name}") for job in refused)}
    moved = (concerned | written | {"people", "notes", "beats", "grown"}) - refused.keys() - silent
    for name, rows in then.rows.items() if then is not None else ():
        if name in moved:
            assert rows == expected[1].rows[name], f"{harm}: {name} has other rows when jobs have gone on"
    if refused:
        places = [str(parent) for parent in PurePath(harm.path).parents][:-1] or [harm.path]
        near = [harm.path, places[0]]
        assert any(each in text for each in near for text in refused.values()), f"{harm}: {refused}"
        return "refused"
    return "repaired" if PurePath(harm.path).name in first.told else "same"


def copy(source: Path, target: Path) -> None:
    """A copy of a stopped directory, without what is made anew."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(
        source,
        target,
        ignore=shutil.ignore_patterns("checkpoint", "logs", "tmp", "socket", "warehouse"),
        symlinks=True,
    )


def _rewrite(path: Path, content: bytes) -> None:
    """In place: a sink knows its file."""
    with path.open("r+b" if path.exists() else "wb") as out:
        out.truncate(0)
        out.write(content)


def _tables(statement: Any) -> tuple[str, ...]:
    query = getattr(statement, "query", None)
    return query.tables if query is not None else ()


def _text(error: VelostreamError) -> str:
    return " ".join(filter(None, (error.message, error.detail, error.hint)))


def _comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(repr(value) for value in row)
