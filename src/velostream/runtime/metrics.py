"""Metrics for Prometheus, served on loopback when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, StateSetMetricFamily

from velostream.errors import ConfigError
from velostream.model.health import HEALTHS
from velostream.model.jobs import JobInfo, JobState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from velostream.runtime.instance import Instance
    from velostream.serving.table.stats import TableStats

_COUNTERS = {
    "records_in": "Rows read from the sources of a job",
    "records_out": "Rows that a job wrote",
    "batches": "Micro-batches that a job has done",
    "rows_looked_up": "Rows read from tables to evaluate joins and groups incrementally",
    "lookup_misses": "Rows of a stream without a match in a table they are joined to",
    "bad_rows": "Rows that could not be processed",
    "late_rows": "Rows that arrived after their window had closed",
    "errors": "Failures of a job",
    "restarts": "Automatic restarts of a job after a failure",
    "attempts": "Attempts of a job to open its sources and its sink",
    "successes": "Attempts after which its sources were healthy",
}
_GAUGES = {
    "rate_in": ("rows_per_second", "Rows read per second, over the last half minute"),
    "latency_ms": ("batch_milliseconds", "Mean time of a micro-batch, over the last half minute"),
    "last_batch_ms": ("last_batch_milliseconds", "Time of the last micro-batch"),
}
_STATE_GAUGES = {
    "state_rows": "Rows of the job's state",
    "state_bytes": "Memory of the job's state",
    "state_growth": "Growth of the job's state in rows a minute, over the last five minutes",
}
_TABLE_GAUGES = {
    "record_count": ("rows", "Rows of a table"),
    "bytes": ("bytes", "Memory of a table's columns"),
    "disk_bytes": ("disk_bytes", "Files of a table"),
    "version": ("version", "Version of a table"),
}


class Figures:
    """Collector that reads the statistics of a database at each scrape; it costs nothing in between."""

    def __init__(self, database: Instance) -> None:
        self._database = database

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        infos = [job.info for job in self._database.jobs_by_name.established()]
        yield from _counters(infos)
        yield from _gauges(infos)
        yield from _held(infos)
        yield from _watermarks(infos)
        yield from _partitions(infos)
        yield from _states(infos)
        yield from self._failures()
        yield from self._attempts()
        yield from self._letters()
        figures = self._database.store.figures()
        yield from _tables({name: each[1] for name, each in figures.items() if each is not None})

    def _letters(self) -> Iterator[Metric]:
        letters = self._database.dead_letters
        if letters is None:
            return
        labels = ["job", "kind"]
        kept = CounterMetricFamily(
            "velostream_dead_letters_kept", "Rows kept as dead letters since the start", labels=labels
        )
        there = GaugeMetricFamily("velostream_dead_letters", "Dead letters that are there", labels=labels)
        for family, counts in ((kept, letters.kept()), (there, letters.counts())):
            for (job, kind), count in counts.items():
                family.add_metric([job, kind], count)
            yield family

    def _attempts(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "velostream_connection_attempts",
            "Attempts of a statement to reach its sources and its sink, by outcome: ok, or a kind of error",
            labels=["statement", "outcome"],
        )
        for (statement, outcome), count in self._database.jobs_by_name.site.attempts.counts().items():
            family.add_metric([statement, outcome], count)
        yield family

    def _failures(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "velostream_job_failures", "Failures of a job by kind of error", labels=["job", "code"]
        )
        for job in self._database.jobs_by_name.established():
            for code, count in job.errors_by_code.items():
                family.add_metric([job.name, code], count)
        yield family


def _counters(infos: list[JobInfo]) -> Iterator[Metric]:
    for field, text in _COUNTERS.items():
        family = CounterMetricFamily(f"velostream_job_{field}", text, labels=["job", "kind"])
        for info in infos:
            family.add_metric([info.name, info.kind], getattr(info.stats, field))
        yield family


def _gauges(infos: list[JobInfo]) -> Iterator[Metric]:
    for field, (name, text) in _GAUGES.items():
        family = GaugeMetricFamily(f"velostream_job_{name}", text, labels=["job", "kind"])
        for info in infos:
            family.add_metric([info.name, info.kind], getattr(info.stats, field))
        yield family


def _held(infos: list[JobInfo]) -> Iterator[Metric]:
    for field, text in _STATE_GAUGES.items():
        family = GaugeMetricFamily(f"velostream_job_{field}", text, labels=["job", "kind"])
        for info in infos:
            figure = getattr(info.stats, field)
            if figure is not None:
                family.add_metric([info.name, info.kind], figure)
        yield family


def _watermarks(infos: list[JobInfo]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "velostream_job_watermark_seconds",
        "How far event time has come, in seconds since 1970",
        labels=["job", "kind"],
    )
    for info in infos:
        if info.stats.watermark is not None:
            family.add_metric([info.name, info.kind], info.stats.watermark.timestamp())
    yield family


def _partitions(infos: list[JobInfo]) -> Iterator[Metric]:
    labels = ["job", "partition"]
    records = CounterMetricFamily(
        "velostream_partition_records", "Records read of a partition of a job's source", labels=labels
    )
    lag = GaugeMetricFamily(
        "velostream_partition_lag", "Records of a partition that a job has not read yet", labels=labels
    )
    latency = GaugeMetricFamily(
        "velostream_partition_latency_seconds",
        "How long batches with records of a partition take, over the last half minute",
        labels=labels,
    )
    for info in infos:
        for part in info.stats.partitions:
            if part.latency_ms is not None:
                latency.add_metric([info.name, part.partition], part.latency_ms / 1000)
            records.add_metric([info.name, part.partition], part.records)
            if part.lag is not None:
                lag.add_metric([info.name, part.partition], part.lag)
    yield records
    yield lag
    yield latency


def _states(infos: list[JobInfo]) -> Iterator[Metric]:
    family = StateSetMetricFamily("velostream_job_state", "State of a job", labels=["job", "kind"])
    for info in infos:
        family.add_metric([info.name, info.kind], {str(state): state is info.state for state in JobState})
    yield family


def _tables(stats: dict[str, TableStats]) -> Iterator[Metric]:
    for field, (name, text) in _TABLE_GAUGES.items():
        family = GaugeMetricFamily(f"velostream_table_{name}", text, labels=["table"])
        for table, figures in stats.items():
            family.add_metric([table], getattr(figures, field))
        yield family
    healthy = GaugeMetricFamily(
        "velostream_table_healthy", "1 unless a table's source fails", labels=["table"]
    )
    for table, figures in stats.items():
        healthy.add_metric([table], 1.0 if figures.health == "healthy" else 0.0)
    yield healthy
    states = StateSetMetricFamily("velostream_table_health", "How a table's source is", labels=["table"])
    for table, figures in stats.items():
        states.add_metric([table], {health: health == figures.health for health in HEALTHS})
    yield states


def serve(database: Instance, port: int) -> str:
    """Serve the metrics on loopback until the process ends; returns the address. Port 0: any free port."""
    registry = CollectorRegistry()
    registry.register(Figures(database))
    try:
        server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as exc:
        raise ConfigError(
            f"cannot serve metrics on port {port}: {(exc.strerror or str(exc)).lower()}",
            hint="give another port with --metrics-port, or 0 for any",
        ) from exc
    return f"http://127.0.0.1:{server.server_port}/metrics"
