"""What import contracts cannot say: words that belong to one folder, and what is loaded at run time."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "velostream"
MOST_MODULES = 13


def test_only_spark_touches_what_lies_under_pyspark():
    words = re.compile(r"\b_(jvm|jdf|jsparkSession|jsc|jc|gateway_client)\b|\bconf\.(set|unset)\(")
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        if SOURCE / "spark" not in path.parents
        for line in path.read_text(encoding="utf-8").splitlines()
        if words.search(line)
    ]
    assert found == []


def test_every_connector_is_kept_apart_from_the_others():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (apart,) = [each["modules"] for each in contracts if each["type"] == "independence"]
    shared = {"databases", "files", "lakes"}
    folders = {path.parent.name for path in SOURCE.glob("connectors/*/__init__.py")} - shared
    assert sorted(apart) == sorted(f"velostream.connectors.{name}" for name in folders)


def test_no_connector_is_asked_for_by_name_above_its_layer():
    asked = re.compile(r"(connector|ref\.uri)\.(name|scheme)\s*(==|!=|\bin\b)|\bneeds\s*==")
    found = [
        str(path.relative_to(SOURCE))
        for folder in ("sql", "plan", "engine", "runtime", "cli")
        for path in (SOURCE / folder).rglob("*.py")
        if asked.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_no_storage_is_asked_for_by_name_above_its_layer():
    asked = re.compile(
        r"""["']delta["']|\bin_delta\b|\bDelta(Table|Version|TableSource|Pipeline|Engine|Storage)\b"""
    )
    found = {
        str(path.relative_to(SOURCE))
        for folder in ("plan", "serving", "engine", "runtime", "cli", "testing")
        for path in (SOURCE / folder).rglob("*.py")
        if SOURCE / "engine" / "delta" not in path.parents and asked.search(path.read_text(encoding="utf-8"))
    }
    # Storages are registered there.
    assert found == {"engine/storages.py"}


def test_no_folder_is_longer_than_a_screen():
    folders = Counter(path.parent for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    long = {str(folder.relative_to(SOURCE)): n for folder, n in folders.items() if n > MOST_MODULES}
    # Frozen data, one noun a file.
    assert long.pop("model", 0) <= 15
    assert long == {}


def test_planning_and_the_read_path_do_not_load_spark():
    """Neither their modules nor a decision, for which connectors are asked."""
    folders = ("sql", "plan", "serving", "config.py", "model", "disk")
    paths = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] in folders]
    modules = [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in sorted(paths)]
    assert len(modules) > 100
    script = f"""
import importlib, sys
for name in {modules}:
    importlib.import_module(name)
from velostream.connectors.registry import default_registry
from velostream.location import SourceText
from velostream.plan.strategy import decide
from velostream.sql import EmptyCatalog, check_script
text = "CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM kafka://events GROUP BY k"
checked = check_script(SourceText(text), EmptyCatalog(), default_registry())
assert not checked.errors, checked.errors
decide(checked.statements[0])
print(*[name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
