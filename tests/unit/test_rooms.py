"""Tests use what the product offers, and reach for nothing that it keeps to itself."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

TESTS = Path(__file__).parents[1]
OTHERS = {
    "_asdict": "of named tuples",
    "_replace": "of named tuples",
    "_current_frames": "of Python's sys",
    "_gateway": "of pyspark",
    "_jsc": "of pyspark",
    "_jvm": "of pyspark",
    "_repr_html_": "of notebooks",
}
"""Names with an underscore that are not ours, and whose they are."""
PRIVATE = re.compile(r"_[A-Za-z]\w*")


def own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def reached(tree: ast.Module) -> list[tuple[int, str]]:
    """Private names that a module reads of others: as attributes, by import, and by name to replace them."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr) and not own(node.value):
            found.append((node.lineno, node.attr))
        elif isinstance(node, ast.ImportFrom):
            found += [(node.lineno, each.name) for each in node.names if PRIVATE.fullmatch(each.name)]
        elif isinstance(node, ast.Call | ast.Tuple):
            parts = node.args if isinstance(node, ast.Call) else node.elts
            # An owner and the name of a part of it: `setattr(owner, "_name", …)`, `(Owner, "_name", …)`.
            for owner, name in pairwise(parts):
                if not isinstance(owner, ast.Name | ast.Attribute) or not isinstance(name, ast.Constant):
                    continue
                if isinstance(name.value, str) and PRIVATE.fullmatch(name.value) and not own(owner):
                    found.append((name.lineno, name.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A module named by its path, and programs that a test runs in a process of their own.
            for path in re.findall(r"\b(?:velostream\.[\w.]+|session)\.(_[a-zA-Z]\w*)", node.value):
                found.append((node.lineno, path))
    return [(line, name) for line, name in found if name not in OTHERS]


def test_no_test_reaches_for_what_the_product_keeps_to_itself():
    found = [
        f"{path.relative_to(TESTS)}:{line}: {name}"
        for path in sorted({*TESTS.rglob("*.py")} - {Path(__file__)})
        for line, name in reached(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_every_way_of_reaching_is_seen():
    ways = (
        "table._writer.lock",
        "setattr(journal, '_SNAPSHOT_BYTES', 0)",
        "places = (Table, '_publish', before)",
        "from velostream.plan.groups.merge import _average",
        "patch('velostream.serving.durable.table_files._SNAPSHOT_BYTES', 0)",
    )
    assert [len(reached(ast.parse(way))) for way in ways] == [1] * len(ways)
    assert reached(ast.parse("self._own = row._asdict() | spark._jvm.none")) == []


def test_no_two_test_modules_have_one_name():
    """Outside packages pytest knows a test module by its file name alone, and refuses a second one."""
    names = [path.name for path in TESTS.rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    assert sorted({name for name in names if names.count(name) > 1}) == []
