"""Writes docs/reference from the code, so that every property, function and error is found."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from velostream import errors
from velostream.connectors.registry import default_registry
from velostream.model.options import CommonOptions
from velostream.sql.functions import functions

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


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


PAGES = {"properties.md": properties, "functions.md": function_list, "errors.md": error_list}


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
