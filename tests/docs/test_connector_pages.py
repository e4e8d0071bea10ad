"""Each connector has a page that says what it guarantees, which rights it needs, and its properties."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from velostream.connectors import registry
from velostream.connectors.registry import BUILT_IN

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"<!-- made from the code: ([\w, ]+) -->\n(.*?)<!-- end -->", re.DOTALL)
PAGES = sorted(
    path for path in (ROOT / "docs").glob("*.md") if SECTION.search(path.read_text(encoding="utf-8"))
)
WITHOUT = {"console", "datagen"}
"""Connectors without a page: there is nothing outside that would have rights or keep rows."""


def told(path: Path) -> dict[str, str]:
    """The section of each connector that a page is about."""
    sections = SECTION.findall(path.read_text(encoding="utf-8"))
    return {name: text for names, text in sections for name in names.split(", ")}


def test_every_connector_has_a_page():
    on_pages = [name for path in PAGES for name in told(path)]
    assert sorted(on_pages) == sorted({*on_pages}), "one connector, one page"
    rest = (ROOT / "docs" / "reference" / "properties.md").read_text(encoding="utf-8")
    for name in BUILT_IN:
        assert f"\n## {name}\n" in rest
        assert (name in on_pages) or (name in WITHOUT) or f"| addresses | `{name}://`" in rest, name


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_has_guarantees_rights_and_properties(path: Path):
    text = path.read_text(encoding="utf-8")
    by_hand = SECTION.sub("", text)
    assert re.search(r"exactly[ \n]once|at[ \n]least[ \n]once|exactly:", by_hand, re.IGNORECASE)
    assert re.search(r"^## Rights$", text, re.MULTILINE)
    for name, section in told(path).items():
        known = registry.by_name(name)
        for each in known.options.property_names():
            assert f"\n| `{each}` | " in section
        for guarantee in known.connector.delivery if known.writes else ():
            assert guarantee.replace("_", " ") in section


def test_a_stale_page_is_noticed(tmp_path: Path):
    """`scripts/reference.py --check`, which test_docs runs, compares with this."""
    made = runpy.run_path(str(ROOT / "scripts" / "reference.py"))["connector_page"]
    page = ROOT / "docs" / "s3.md"
    stale = tmp_path / "s3.md"
    stale.write_text(
        re.sub(r"^\| `wait.timeout` .*\n", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    assert made(stale) == made(page) == page.read_text(encoding="utf-8") != stale.read_text(encoding="utf-8")
