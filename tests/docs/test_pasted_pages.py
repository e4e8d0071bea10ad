"""The guide and the examples, pasted into terminals; the notebook and the Streamlit page as people see."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from terminals import follow

import velostream

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
PATIENCE = 60_000
"""Milliseconds until a page must show what it should."""


def example(name: str, folder: Path, meanwhile: Callable[[Path], None] = lambda _: None) -> None:
    """Follow the README of an example, in a copy of it; `meanwhile` is called while everything runs.

    The copy has what a fresh clone has: nothing that git does not know or ignores.
    """
    place = folder / name
    for path in _of_a_clone(EXAMPLES / name):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(EXAMPLES / name / path, place / path)
    follow(place / "README.md", place, lambda: meanwhile(place))


def _of_a_clone(folder: Path) -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."]
    listed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.split("\0") if path and (folder / path).is_file()]


@pytest.mark.spark
@pytest.mark.slow
def test_the_guide(tmp_path: Path) -> None:
    follow(ROOT / "docs" / "guide.md", tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["connectors", "files", "kafka", "testing", "windows"])
def test_examples(tmp_path: Path, name: str) -> None:
    example(name, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_the_notebook(tmp_path: Path) -> None:
    example("notebook", tmp_path, execute_notebook)


def execute_notebook(folder: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(folder / "trades.ipynb", 4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code), "it is kept without outputs"
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}})
    proposed: dict[str, set[str]] = {}
    with client.setup_kernel():
        for place, cell in enumerate(notebook.cells):
            if cell.id == "close":
                for name in ("velostream", "db", "table"):
                    proposed[name] = completions(client, f"{name}.")
            client.execute_cell(cell, place)
    assert proposed["velostream"] == {name for name in velostream.__all__ if not name.startswith("_")}
    assert {"sql", "table", "jobs", "wait_until"} <= proposed["db"]
    assert {"get", "rows", "changes", "wait_for"} <= proposed["table"]
    hidden = {"access", "executor", "lifetime", "commit_keyed", "changelog", "spec"}
    assert not any(hidden & names for names in proposed.values())
    outputs = {cell.id: cell.outputs for cell in code}
    shown = {name: outputs[name][0].data for name in ("connect", "table", "jobs")}
    assert shown["connect"]["text/plain"].endswith(": 2 tables, 1 jobs, of another process>")
    assert "<th>rows</th>" in shown["connect"]["text/html"]
    assert shown["table"]["text/plain"].startswith("<Table by_symbol: ")
    assert "<th>symbol</th>" in shown["table"]["text/html"]
    assert shown["jobs"]["text/plain"].startswith("<Job by_symbol: running, ")
    (result,) = outputs["sql"]
    assert result.data["text/html"].count("<tr") >= 3
    (row,) = outputs["get"]
    assert "symbol='AAPL'" in row.data["text/plain"]
    (grown,) = outputs["wait_for"]
    assert grown.data["text/plain"] == "True"
    assert {printed.name for printed in outputs["stream"]} == {"stdout"}
    first, *later = "".join(printed.text for printed in outputs["stream"]).splitlines()
    assert first.endswith("retracted []")
    assert len(later) == 2
    assert all("'symbol': 'AAPL'" in line.partition("retracted")[2] for line in later)


def completions(client: Any, code: str) -> set[str]:
    """What Tab proposes in the kernel."""
    from nbclient.util import run_sync

    async def ask() -> Any:
        return await client.kc.complete(code, len(code), reply=True, timeout=60)

    answer = run_sync(ask)()
    return {match.rpartition(".")[2] for match in answer["content"]["matches"]}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:playwright")
def test_the_streamlit_page(tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("there is no chromium: scripts/browser installs it")
    example("streamlit", tmp_path, lambda _: look_at_page(browser))


def look_at_page(browser: str) -> None:
    from playwright.sync_api import expect, sync_playwright

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"]) as chromium,
    ):
        page = chromium.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto("http://localhost:8601")
        trades = page.get_by_test_id("stMetricValue").first
        expect(trades).to_be_visible(timeout=PATIENCE)
        expect(trades).not_to_have_text(trades.inner_text(), timeout=PATIENCE)  # it moves
        expect(page.get_by_text("AAPL: ")).to_be_visible()
        symbol = page.get_by_role("textbox", name="Symbol")
        symbol.fill("nope")
        symbol.press("Enter")
        expect(page.get_by_text("no trade of NOPE yet")).to_be_visible(timeout=PATIENCE)
        expect(page.get_by_test_id("stException")).to_have_count(0)


def test_every_example_is_followed() -> None:
    followed = {"connectors", "files", "kafka", "notebook", "streamlit", "testing", "windows"}
    assert {path.parent.name for path in EXAMPLES.glob("*/README.md")} == followed


PAGE = """
```bash
cat > words.txt <<'END'
one
two
END
sort -r words.txt
```

```text
two
one
```

```bash title="first terminal"
tail -f words.txt
```

```text
two
```

Press <kbd>Ctrl-C</kbd> in the
first terminal.
"""


def test_what_is_printed_is_compared(tmp_path: Path) -> None:
    page, ran = tmp_path / "page.md", list[str]()
    page.write_text(PAGE)
    follow(page, tmp_path, lambda: ran.append("meanwhile"))
    assert ran == ["meanwhile"]
    page.write_text(PAGE.replace("two\none", "one\ntwo"))
    with pytest.raises(AssertionError, match=r"page.md:2: expected \('one', 'two'\)"):
        follow(page, tmp_path)
    page.write_text(PAGE.replace("sort -r", "sort --no-such-option"))
    with pytest.raises(AssertionError, match="exit code 2"):
        follow(page, tmp_path)
