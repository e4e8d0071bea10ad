"""Links of all pages as they are read where the files are; `make docs` checks those of the site."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "tests/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
_CODE = re.compile(r"^(```|~~~).*?^\1$|(`+).+?\2", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@cache
def anchors(page: Path) -> set[str]:
    """The sections of a page, as links name them: lower case, without punctuation, with hyphens."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = _CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    for target, section in _LINK.findall(text):
        there = (ROOT / page).parent / target if target else ROOT / page
        assert there.exists(), f"{page} links to {target}, which is not there"
        if section:
            assert section in anchors(there), f"{page}: {target or page} has no #{section}"
