"""SHOW and DESCRIBE: the contents of the database, as rows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.registry import default_registry
from velostream.engine.bad_rows.letter import NAME
from velostream.model import statements as model
from velostream.model.jobs import JobInfo, JobState, JobStats
from velostream.secrets import redact_statement
from velostream.sql.functions import functions
from velostream.sql.types import schema_text, spark_ddl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.runtime.catalog.catalog import Catalog, Entry
    from velostream.runtime.jobs.jobs import Jobs
    from velostream.serving.table.store import TableStore


def _awaited(catalog: Catalog) -> list[str]:
    """Tables that wait for the first record of their source, and have no columns yet."""
    return [entry.name for entry in catalog if catalog.awaited(entry.name)]


def show(statement: model.Show, catalog: Catalog, store: TableStore, jobs: Jobs | None) -> pa.Table:
    """The rows of one SHOW."""
    kind = statement.kind
    if kind is model.ShowKind.TABLES:
        return tables(store, _awaited(catalog))
    if kind is model.ShowKind.MATERIALIZED_VIEWS:
        maintained = [e.name for e in catalog if getattr(e.statement, "query", None) is not None]
        found = tables(store, _awaited(catalog))
        return found.filter(pc.is_in(found["name"], pa.array(maintained, pa.string())))
    if kind is model.ShowKind.JOBS:
        return job_rows(jobs, catalog, store)
    if kind is model.ShowKind.FUNCTIONS:
        known = sorted(functions().values(), key=lambda f: f.name)
        return pa.table({"name": [f.name for f in known], "usage": [f.usage for f in known]})
    if kind is model.ShowKind.CONNECTORS:
        return connectors()
    if kind is model.ShowKind.PROPERTIES:
        return properties(statement.connector)
    made = {
        model.ShowKind.STREAMS: model.CreateStream,
        model.ShowKind.SOURCES: model.CreateSource,
        model.ShowKind.VIEWS: model.CreateView,
    }[kind]
    entries = [e for e in catalog if isinstance(e.statement, made)]
    return pa.table(
        {
            "name": pa.array([e.name for e in entries], pa.string()),
            "columns": pa.array([schema_text(e.result) if e.result else None for e in entries], pa.string()),
            "statement": pa.array([redact_statement(e.text) for e in entries], pa.string()),
        }
    )


def tables(store: TableStore, awaited: Sequence[str] = ()) -> pa.Table:
    """One row per table, with its statistics.

    Only the name of a table whose files are damaged, and of one that waits for its first record.
    """
    figures = {**store.figures(), **dict.fromkeys(awaited)}
    stats = [each[1] if each is not None else None for each in figures.values()]
    keys = [", ".join(each[0].lookup_key) or None if each is not None else None for each in figures.values()]
    missing = [
        ("degraded", "waits for its first record") if n in awaited else ("failed", None) for n in figures
    ]
    health = [
        (s.health, s.health_reason) if s is not None else m for s, m in zip(stats, missing, strict=True)
    ]
    return pa.table(
        {
            "name": pa.array(figures, pa.string()),
            "rows": pa.array([s and s.record_count for s in stats], pa.int64()),
            "key": pa.array(keys, pa.string()),
            "version": pa.array([s and s.version for s in stats], pa.int64()),
            "source": pa.array([s and s.datasource_type for s in stats], pa.string()),
            "health": pa.array([state for state, _ in health], pa.string()),
            "reason": pa.array([reason for _, reason in health], pa.string()),
            "last_updated": pa.array([s and s.last_updated for s in stats], pa.timestamp("us", tz="UTC")),
            "bytes": pa.array([s and s.bytes for s in stats], pa.int64()),
        }
    )


_PARTITIONS = pa.list_(
    pa.struct(
        [
            ("partition", pa.string()),
            ("records", pa.int64()),
            ("rate", pa.float64()),
            ("latency_ms", pa.float64()),
            ("lag", pa.int64()),
            ("event_time", pa.timestamp("us", tz="UTC")),
        ]
    )
)


def job_rows(jobs: Jobs | None, catalog: Catalog, store: TableStore | None = None) -> pa.Table:
    """One row per job, with its statistics; jobs that this process did not start are stopped or paused."""
    letters = _letters_by_job(store)
    infos = [job.info for job in jobs] if jobs is not None else []
    started = {info.id for info in infos}
    infos += [_asleep(entry) for entry in catalog if entry.job is not None and entry.job not in started]
    return pa.table(
        {
            "id": pa.array([i.id for i in infos], pa.string()),
            "name": pa.array([i.name for i in infos], pa.string()),
            "kind": pa.array([i.kind for i in infos], pa.string()),
            "state": pa.array([str(i.state) for i in infos], pa.string()),
            "reason": pa.array([i.reason for i in infos], pa.string()),
            "records_in": pa.array([i.stats.records_in for i in infos], pa.int64()),
            "records_out": pa.array([i.stats.records_out for i in infos], pa.int64()),
            "batches": pa.array([i.stats.batches for i in infos], pa.int64()),
            "rate_in": pa.array([round(i.stats.rate_in, 1) for i in infos], pa.float64()),
            "latency_ms": pa.array([round(i.stats.latency_ms, 1) for i in infos], pa.float64()),
            "lag": pa.array([i.stats.lag for i in infos], pa.int64()),
            "watermark": pa.array([i.stats.watermark for i in infos], pa.timestamp("us", tz="UTC")),
            "state_rows": pa.array([i.stats.state_rows for i in infos], pa.int64()),
            "state_bytes": pa.array([i.stats.state_bytes for i in infos], pa.int64()),
            "state_growth": pa.array([_rounded(i.stats.state_growth) for i in infos], pa.float64()),
            "late_rows": pa.array([i.stats.late_rows for i in infos], pa.int64()),
            "lookup_misses": pa.array([i.stats.lookup_misses for i in infos], pa.int64()),
            "bad_rows": pa.array([i.stats.bad_rows for i in infos], pa.int64()),
            "dead_letters": pa.array([letters.get(i.name, 0) for i in infos], pa.int64()),
            "errors": pa.array([i.stats.errors for i in infos], pa.int64()),
            "restarts": pa.array([i.stats.restarts for i in infos], pa.int64()),
            "partitions": pa.array(
                [[asdict(p) for p in i.stats.partitions] or None for i in infos], _PARTITIONS
            ),
        }
    )


def _rounded(figure: float | None) -> float | None:
    return round(figure, 1) if figure is not None else None


def _letters_by_job(store: TableStore | None) -> dict[str, int]:
    """The number of dead letters of each job; a directory opened read-only may lack that table."""
    table = store.readable(NAME) if store is not None and NAME in store.names() else None
    if table is None:
        return {}
    found = table.snapshot().select(["job"]).group_by("job", use_threads=False).aggregate([([], "count_all")])
    return dict(zip(found["job"].to_pylist(), found["count_all"].to_pylist(), strict=True))


def _asleep(entry: Entry) -> JobInfo:
    state = JobState.PAUSED if entry.paused else JobState.STOPPED
    kind = type(entry.statement).__name__.removeprefix("Create").lower()
    kind = "insert" if isinstance(entry.statement, model.InsertIntoSink) else kind
    return JobInfo(
        entry.job or "", entry.name, kind, state, None, redact_statement(entry.text), None, JobStats()
    )


def connectors() -> pa.Table:
    """One row per connector: what it reads and writes, with which guarantee, and what it needs."""
    registry = default_registry()
    known = [registry.by_name(name) for name in registry.names()]
    follows = [c.connector.follows if c.reads else None for c in known]
    delivery = [", ".join(c.connector.delivery) if c.writes else None for c in known]
    return pa.table(
        {
            "name": pa.array([c.name for c in known], pa.string()),
            "schemes": pa.array([", ".join(c.connector.schemes) for c in known], pa.string()),
            "reads": pa.array([c.reads for c in known], pa.bool_()),
            "writes": pa.array([c.writes for c in known], pa.bool_()),
            "follows": pa.array(follows, pa.string()),
            "delivery": pa.array(delivery, pa.string()),
            "package": pa.array([c.package for c in known], pa.string()),
            "installed": pa.array([c.installed for c in known], pa.bool_()),
        }
    )


def properties(connector: str | None) -> pa.Table:
    """One row per property."""
    known = default_registry().property_reference(connector)
    return pa.table(
        {
            "connector": [p.connector for p in known],
            "property": [p.name for p in known],
            "type": [p.type for p in known],
            "default": pa.array([p.default for p in known], pa.string()),
            "description": [p.description for p in known],
        }
    )


def describe(name: str, catalog: Catalog, store: TableStore) -> pa.Table:
    """One row per column of a table, stream, source or view."""
    if name in store.names():
        infos = store.open(name).describe()
        return pa.table(
            {
                "column": [i.name for i in infos],
                "type": [spark_ddl(i.type) for i in infos],
                "key": [i.key for i in infos],
            }
        )
    entry = catalog.require(name)
    schema = entry.result
    columns = entry.statement.columns if isinstance(entry.statement, model.CreateSource) else ()
    pairs = [(f.name, f.type) for f in schema] if schema is not None else [(c.name, c.type) for c in columns]
    return pa.table(
        {
            "column": pa.array([n for n, _ in pairs], pa.string()),
            "type": pa.array([spark_ddl(t) for _, t in pairs], pa.string()),
            "key": pa.array([False for _ in pairs], pa.bool_()),
        }
    )
