"""Writes docs/reference, and the sections of docs that are marked, from the code.

So every property, function, error and metric is found. Between `<!-- made from the code: kafka -->` and
`<!-- end -->` a page has what a connector does, and its properties; `s3, gs` tells of both in one table.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from velostream import errors
from velostream.config import load
from velostream.connectors.properties import describe_options
from velostream.connectors.registry import default_registry
from velostream.model.health import HEALTHS
from velostream.model.jobs import JobState
from velostream.model.options import CommonOptions
from velostream.runtime.instance import Instance
from velostream.runtime.metrics import Figures
from velostream.sql.functions import functions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from velostream.connectors.properties import PropertyInfo

DOCS = Path(__file__).resolve().parent.parent / "docs"
FOLDER = DOCS / "reference"
_SECTION = re.compile(
    r"(?P<begin><!-- made from the code: (?P<names>[\w, ]+) -->)\n.*?(?P<end><!-- end -->)", re.DOTALL
)
"""Where the page of a connector has what the code says of it."""


def properties() -> str:
    """Every property; those of a connector that has a page of its own are there."""
    lines = ["# Properties", "", "Made from the code by `scripts/reference.py`.", ""]
    lines += ["## any", "", *_table(describe_options(CommonOptions, "")), ""]
    pages = {name: page for page in sorted(DOCS.glob("*.md")) for name in _told_in(page)}
    for name in default_registry().names():
        lines += [f"## {name}", ""]
        if name in pages:
            title = pages[name].read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            lines += [f"See [{title}](../{pages[name].name}#properties).", ""]
        else:
            lines += [*_connectors([name]), ""]
    return "\n".join(lines)


def connector_page(path: Path) -> str:
    """A page about connectors, with what the code says of them between the marks."""

    def made(section: re.Match[str]) -> str:
        return "\n".join(
            [section["begin"], "", *_connectors(section["names"].split(", ")), "", section["end"]]
        )

    return _SECTION.sub(made, path.read_text(encoding="utf-8"))


def _told_in(page: Path) -> list[str]:
    """The connectors whose properties a page has."""
    sections = _SECTION.finditer(page.read_text(encoding="utf-8"))
    return [name for section in sections for name in section["names"].split(", ")]


def _connectors(names: Sequence[str]) -> list[str]:
    """What connectors do, and their properties."""
    known = [default_registry().by_name(name) for name in names]
    facts = {
        "addresses": [", ".join(f"`{scheme}://`" for scheme in each.connector.schemes) for each in known],
        "read": [f"what is there, then {each.connector.follows}" if each.reads else "no" for each in known],
        "written": [
            " or ".join(one.replace("_", " ") for one in each.connector.delivery) if each.writes else "no"
            for each in known
        ],
        "needs": [f'`pip install "{each.package}"`' if each.package else "nothing more" for each in known],
    }
    heading = f"| | {' | '.join(names)} |" if len(names) > 1 else "| | |"
    lines = [heading, f"|---{'|---' * len(names)}|"]
    lines += [f"| {fact} | {' | '.join(map(_cell, told))} |" for fact, told in facts.items()]
    owners: dict[PropertyInfo, list[str]] = {}
    for each in known:
        for found in describe_options(each.options, ""):
            owners.setdefault(found, []).append(each.name)
    partial = {found: ", ".join(of) for found, of in owners.items() if len(of) < len(known)}
    return [*lines, "", *_table(owners, partial)]


def _table(found: Iterable[PropertyInfo], of: Mapping[PropertyInfo, str] | None = None) -> list[str]:
    """Properties; `of` says of which connectors those are that not all have."""
    lines = ["| property | type | default | |", "|---|---|---|---|"]
    for each in found:
        only = f"{of[each]}: " if of and each in of else ""
        text = _cell(f"{only}{each.description}")
        lines.append(f"| `{each.name}` | {_cell(each.type)} | {_cell(each.default)} | {text} |")
    return lines


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
    texts = {path: connector_page(path) for path in sorted(DOCS.glob("*.md"))}
    texts |= {FOLDER / name: make() for name, make in PAGES.items()}
    stale = []
    for path, text in texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(DOCS)))
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        raise SystemExit(f"out of date, run scripts/reference.py: {', '.join(stale)}")


if __name__ == "__main__":
    main()
