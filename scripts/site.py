"""Hooks of mkdocs: pages outside of `docs`, and files that pages link to, become part of the site.

Pages are written so that their links work where the files are, in an editor and in a browser of the
repository. Here links out of `docs` are followed: another page is taken in, any other file is shown as code.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from collections.abc import Callable

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
BEYOND = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")
"""Pages outside of `docs` that the navigation names; others follow by their links."""
_LANGUAGES = {".py": "python", ".sql": "sql"}
_CODE = re.compile(r"^(```|~~~).*?^\1|(`+).+?\2", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")

_place_of: dict[str, str] = {}
"""Where in the repository a page of the site comes from, for pages that are not in `docs`."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take in everything that can be reached from the pages of `docs`."""
    waiting = [*BEYOND, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    seen = set[str]()
    while waiting:
        place = waiting.pop()
        if place in seen or not (ROOT / place).is_file():
            continue
        seen.add(place)
        if not place.startswith("docs/"):
            _place_of[site_path(place)] = place
            files.append(_file(place, config))
        if place.endswith(".md"):
            waiting += linked(place, (ROOT / place).read_text(encoding="utf-8"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where their targets are in the site."""
    uri = page.file.src_uri
    place = _place_of.get(uri, f"docs/{uri}")
    if not place.endswith(".md"):
        return markdown

    def here(link: re.Match[str]) -> str:
        return posixpath.relpath(site_path(target(place, link[1])), posixpath.dirname(uri) or ".")

    return _outside_code(markdown, here)


def linked(place: str, markdown: str) -> list[str]:
    """The files of the repository that a page links to."""
    found: list[str] = []

    def note(link: re.Match[str]) -> str:
        found.append(target(place, link[1]))
        return link[0]

    _outside_code(markdown, note)
    return found


def target(place: str, link: str) -> str:
    """The place that a link of a page means; that of a folder is its README."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
    return f"{found}/README.md" if (ROOT / found / "README.md").is_file() else found


def site_path(place: str) -> str:
    """Where a file of the repository is in the site."""
    if place.startswith("docs/"):
        return place.removeprefix("docs/")
    folder, name = posixpath.split(place)
    if name == "README.md":
        return posixpath.join(folder, "index.md")
    if not folder:
        return name.lower()
    return place if place.endswith(".md") else f"{place}.md"


def _file(place: str, config: MkDocsConfig) -> File:
    path, uri = ROOT / place, site_path(place)
    if place.endswith(".md"):
        return File.generated(config, uri, abs_src_path=str(path))
    shown = _notebook if path.suffix == ".ipynb" else _listing
    return File.generated(config, uri, content=shown(path), inclusion=InclusionLevel.NOT_IN_NAV)


def _listing(path: Path) -> str:
    language = _LANGUAGES.get(path.suffix, "text")
    code = path.read_text(encoding="utf-8")
    return f"# {path.name}\n\n`{path.relative_to(ROOT)}`\n\n~~~{language}\n{code}~~~\n"


def _notebook(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = (("".join(cell["source"]), cell["cell_type"] == "code") for cell in cells)
    return "\n\n".join(f"~~~python\n{text}\n~~~" if code else text for text, code in texts)


def _outside_code(markdown: str, change: Callable[[re.Match[str]], str]) -> str:
    parts, at = [], 0
    for code in _CODE.finditer(markdown):
        # A pipe in the cell of a table is escaped for other readers of Markdown, also inside of code.
        text = code[0] if code[1] else code[0].replace("\\|", "|")
        parts += [_LINK.sub(change, markdown[at : code.start()]), text]
        at = code.end()
    return "".join([*parts, _LINK.sub(change, markdown[at:])])
