"""Writes docs/reference from the code, so that every property, function, error and metric is found."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from velostream import errors
from velostream.config import load
from velostream.connectors.registry import default_registry
from velostream.model.health import HEALTHS
from velostream.model.jobs import JobState
from velostream.model.options import CommonOptions
from velostream.runtime.instance import Instance
from velostream.runtime.metrics import Figures
from velostream.sql.functions import functions

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"


def properties() -> str:
    """Every property, by connector."""
    lines = ["# Properties", "", "Made from the code by `scripts/reference.py`.", ""]
    registry = default_registry()
    by_connector: dict[str, list[tuple[str, str, str, str]]] = {}
    for found in registry.property_reference():
        by_connector.setdefault(found.connector, []).append(
            (found.name, found.type, found.default or "", found.description)
        )
    for connector, rows in by_connector.items():
        lines += [f"## {connector}", "", "| property | type | default | |", "|---|---|---|---|"]
        lines += [f"| `{n}` | {_cell(t)} | {_cell(d)} | {_cell(text)} |" for n, t, d, text in rows]
        lines.append("")
    missing = set(CommonOptions.property_names()) - {row[0] for rows in by_connector.values() for row in rows}
    if missing:
        raise SystemExit(f"not in the reference: {missing}")
    return "\n".join(lines)


def function_list() -> str:
    """Every function that SQL may call."""
    lines = [
        "# Functions",
        "",
        "Spark's, but the unsafe ones, and our own. Made from the code by `scripts/reference.py`.",
        "",
    ]
    lines += ["| function | |", "|---|---|"]
    for found in sorted(functions().values(), key=lambda f: f.name):
        lines.append(f"| `{found.name}` | {_cell(' '.join(found.usage.split()))} |")
    return "\n".join([*lines, ""])


def error_list() -> str:
    """Every error, as a tree of codes."""
    lines = ["# Errors", "", "Made from the code by `scripts/reference.py`.", ""]
    lines += ["| code | class | who acts | trying again helps | exit code | |", "|---|---|---|---|---|---|"]
    kinds = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.VelostreamError) and kind is not errors.VelostreamError
    ]
    for kind in sorted(kinds, key=lambda k: (k.code, k.__name__)):
        helps = "yes" if kind.retryable else "no"
        text = _cell(inspect.getdoc(kind) or "")
        lines.append(
            f"| `{kind.code}` | `{kind.__name__}` | {kind.blame} | {helps} | {kind.exit_code} | {text} |"
        )
    return "\n".join([*lines, ""])


_METRICS = """# Metrics

Made from the code by `scripts/reference.py`.

```console
$ velo run app.sql --metrics-port 9100
metrics: http://127.0.0.1:9100/metrics
```

serves them for Prometheus, on loopback only; `metrics_port` in `velostream.toml` and
`VELOSTREAM_METRICS_PORT` do the same, and port 0 takes any that is free. They are read when they are asked
for, and cost nothing in between. The counters of a job begin at 0 when it starts in this process. `velo jobs`
and `velo tables` show the same figures.

A metric that is a *set of states* has a sample for each state, 1 for the present one and 0 for the others;
the state is in a label with the name of the metric:
`velostream_job_state{{job="totals",kind="table",velostream_job_state="running"}} 1.0`.
A job is {jobs}; its `kind` is `table`, `stream` or `insert`.
A table is {tables}.

To be told when something is wrong, watch `velostream_job_state` (`degraded`, `failed`),
`velostream_table_healthy` (0), `velostream_partition_lag`, and the growth of
`velostream_dead_letters_kept_total` and `velostream_job_late_rows_total`.
"""
_GROUPS = {
    "job": "Jobs",
    "partition": "Partitions",
    "connection": "Connections",
    "table": "Tables",
    "dead": "Dead letters",
}
_KINDS = {"stateset": "set of states"}


def metric_list() -> str:
    """Every metric, by what it is about, under the name that is scraped."""
    groups: dict[str, list[str]] = {}
    with TemporaryDirectory() as folder, Instance(load(None, data_dir=folder)) as database:
        for family in Figures(database).collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = [*family._labelnames, *([family.name] if family.type == "stateset" else [])]
            about = family.name.removeprefix("velostream_").partition("_")[0]
            groups.setdefault(about, []).append(
                f"| `{name}` | {_KINDS.get(family.type, family.type)} | "
                f"{', '.join(f'`{label}`' for label in labels)} | {_cell(family.documentation)} |"
            )
    lines = [_METRICS.format(jobs=_either(JobState), tables=_either(HEALTHS))]
    for about, rows in groups.items():
        lines += [f"## {_GROUPS.get(about, about.capitalize())}", ""]
        lines += ["| metric | type | labels | |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _either(words: Iterable[str]) -> str:
    *most, last = (f"`{word}`" for word in words)
    return f"{', '.join(most)} or {last}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


PAGES = {
    "properties.md": properties,
    "functions.md": function_list,
    "errors.md": error_list,
    "metrics.md": metric_list,
}


def main() -> None:
    """Write the pages; with `--check`, only say whether they are up to date."""
    stale = []
    for name, make in PAGES.items():
        path, text = FOLDER / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        raise SystemExit(f"out of date, run scripts/reference.py: {', '.join(stale)}")


if __name__ == "__main__":
    main()
