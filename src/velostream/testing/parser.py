"""Parses case files; errors are reported with their line.

A line at the left margin begins a case or a step; indented lines belong to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from velostream.errors import CaseError, did_you_mean
from velostream.location import SourceText
from velostream.model.durations import parse_duration
from velostream.testing import cases
from velostream.testing.cells import moment, split_cells

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.location import Location

ENDING = ".velotest"
_NAME = r"[^\W\d][\w.]*"
_REASON = "reason"
_LETTERS = ("reason", "job", "source", "partition", "offset", "raw")
FORMS = {
    "setup": "setup",
    "case": "case NAME",
    "include": "include FILE.sql",
    "run": "run",
    "given": "given SOURCE [partition N]",
    "watermark": "watermark SOURCE TIME",
    "end": "end SOURCE",
    "wait": "wait DURATION",
    "restart": "restart",
    "expect": "expect TABLE [empty] · expect [no] changes in TABLE · expect [nothing] written to SINK · "
    "expect [no] dead letters · expect error [in JOB] TEXT",
}
"""The syntax of each step."""


@dataclass
class _Block:
    """A line at the left margin, and the indented lines below it."""

    head: str
    location: Location
    body: list[tuple[str, Location]] = field(default_factory=list)

    def words(self, pattern: str) -> re.Match[str]:
        found = re.fullmatch(rf"\w+{pattern}", self.head)
        if found is None:
            word = self.head.split(maxsplit=1)[0]
            raise self.wrong(f'"{self.head}" is not how {word} is written', f"write {FORMS[word]}")
        return found

    def wrong(self, message: str, hint: str | None = None) -> CaseError:
        return CaseError(message, hint=hint, location=self.location)

    def nothing_below(self) -> None:
        filled = [place for text, place in self.body if not _blank(text)]
        if filled:
            raise CaseError(f'nothing stands below "{self.head}"', location=filled[0])


@dataclass(frozen=True)
class Parsed:
    """The valid cases of a file, and the errors of the others."""

    cases: tuple[cases.Case, ...]
    errors: tuple[CaseError, ...]


def parse_cases(text: str, name: str, folder: Path | None = None) -> Parsed:
    """The cases of a text; `folder` is where included files are searched."""
    return _File(SourceText(text, name), folder or Path()).parsed()


def read_cases(path: Path) -> Parsed:
    """The cases of a file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        return Parsed((), (CaseError(f'cannot read "{path}": {reason}'),))
    return parse_cases(text, str(path), path.parent)


class _File:
    def __init__(self, source: SourceText, folder: Path) -> None:
        self._source = source
        self._folder = folder
        self._setup: tuple[cases.Step, ...] = ()
        self._cases: list[cases.Case] = []
        self._errors: list[CaseError] = []
        self._names: set[str] = set()

    def parsed(self) -> Parsed:
        blocks = self._blocks()
        begins = [i for i, block in enumerate(blocks) if _first(block.head) in ("case", "setup")]
        for block in blocks[: begins[0] if begins else len(blocks)]:
            self._errors.append(block.wrong(f'"{block.head}" is before any case', 'begin with "case NAME"'))
        for start, end in pairwise([*begins, len(blocks)]):
            self._part(blocks[start:end])
        return Parsed(tuple(self._cases), tuple(self._errors))

    def _blocks(self) -> list[_Block]:
        blocks: list[_Block] = []
        for number, line in enumerate(self._source.text.split("\n")):
            begin = self._source.line_starts[number]
            text = line.rstrip()
            indent = len(text) - len(text.lstrip())
            place = self._source.location(begin + indent, max(begin + len(text), begin + indent + 1))
            if text and not indent and not text.startswith("#"):
                blocks.append(_Block(" ".join(text.split()), place))
            elif blocks:
                # A comment at the margin may follow SQL, which has no such comments.
                blocks[-1].body.append(("" if text.startswith("#") else text, place))
            elif text.strip() and not text.lstrip().startswith("#"):
                self._errors.append(CaseError("this is before any case", location=place))
        return blocks

    def _part(self, blocks: list[_Block]) -> None:
        """A case with its steps, or the setup before each."""
        head, steps, whole = blocks[0], [], True
        for block in blocks:
            try:
                steps += self._begin(block) if block is head else [self._step(block)]
            except CaseError as error:
                self._errors.append(error)
                whole = False
        if not whole:
            return
        if _first(head.head) == "setup":
            self._setup = tuple(steps)
            return
        name = head.head.split(maxsplit=1)[1]
        if not steps:
            self._errors.append(head.wrong(f'case "{name}" has no steps'))
            return
        self._cases.append(
            cases.Case(name, self._source.name, (*self._setup, *steps), head.location),
        )

    def _begin(self, block: _Block) -> list[cases.Step]:
        if _first(block.head) == "setup":
            block.words("")
            if self._cases or self._setup:
                raise block.wrong("setup must be before the first case, once")
        else:
            name = block.words(" (.+)")[1]
            if name in self._names:
                raise block.wrong(f'there is another case "{name}" in this file')
            self._names.add(name)
        return [_statements(block)] if any(text.strip() for text, _ in block.body) else []

    def _step(self, block: _Block) -> cases.Step:
        word = _first(block.head)
        if word not in FORMS:
            hint = None if word.isupper() else did_you_mean(word, FORMS)
            hint = hint or f"a step is one of {', '.join(FORMS)}; SQL is indented"
            raise block.wrong(f'"{word}" is not a step', hint)
        if word == "include":
            return self._include(block)
        return _STEPS[word](block)

    def _include(self, block: _Block) -> cases.Step:
        block.nothing_below()
        path = self._folder / block.words(" (.+)")[1]
        try:
            return cases.Run(block.location, path.read_text(encoding="utf-8-sig"), str(path))
        except (OSError, UnicodeDecodeError) as exc:
            raise block.wrong(f'cannot read "{path}": {exc}') from exc


def _statements(block: _Block) -> cases.Run:
    if not any(text.strip() for text, _ in block.body):
        raise block.wrong("there are no statements below, indented")
    source = block.body[0][1].source
    lines = [text for text, _ in block.body]
    return cases.Run(block.location, "\n" * block.location.line + "\n".join(lines), source.name)


def _run(block: _Block) -> cases.Step:
    block.words("")
    return _statements(block)


def _given(block: _Block) -> cases.Step:
    found = block.words(rf" ({_NAME})(?: partition (\d+))?")
    rows = _rows(block)
    if rows is None:
        raise block.wrong(
            "there are no rows below, indented: first the names of columns, then a line per row"
        )
    return cases.Given(block.location, found[1], int(found[2]) if found[2] else None, rows)


def _watermark(block: _Block) -> cases.Step:
    found = block.words(rf" ({_NAME}) (.+)")
    block.nothing_below()
    try:
        return cases.Advance(block.location, found[1], moment(found[2]))
    except ValueError:
        raise block.wrong(
            f'"{found[2]}" is not a time', "write 12:00:05, or 2026-01-02 12:00:05 for another day"
        ) from None


def _end(block: _Block) -> cases.Step:
    found = block.words(rf" ({_NAME})")
    block.nothing_below()
    return cases.End(block.location, found[1])


def _wait(block: _Block) -> cases.Step:
    found = block.words(" (.+)")
    block.nothing_below()
    try:
        return cases.Wait(block.location, parse_duration(found[1]))
    except ValueError as exc:
        raise block.wrong(str(exc)) from None


def _restart(block: _Block) -> cases.Step:
    block.words("")
    block.nothing_below()
    return cases.Restart(block.location)


def _expect(block: _Block) -> cases.Step:
    text = block.head.removeprefix("expect").strip()
    if found := re.fullmatch(rf"error(?: in ({_NAME}))?(?: (.+))?", text):
        return _error(block, found)
    if found := re.fullmatch(rf"(no )?changes in ({_NAME})", text):
        return cases.ExpectChanges(block.location, found[2], _as_told(block, found[1]))
    if found := re.fullmatch(rf"(nothing )?written to ({_NAME})", text):
        return cases.ExpectWritten(block.location, found[2], _as_told(block, found[1]))
    if found := re.fullmatch("(no )?dead letters?", text):
        return cases.ExpectDeadLetters(
            block.location, _letters(block) if not found[1] else _as_told(block, "no")
        )
    found = block.words(rf" ({_NAME})( empty)?")
    return cases.ExpectRows(block.location, found[1], _as_told(block, found[2]))


def _error(block: _Block, found: re.Match[str]) -> cases.Step:
    texts = [text.strip() for text, _ in block.body if not _blank(text)]
    if found[2]:
        texts.insert(0, found[2])
    if not texts:
        raise block.wrong("nothing is said of the error", "write a part of its message")
    return cases.ExpectError(block.location, found[1], tuple(texts))


def _as_told(block: _Block, nothing: str | None) -> cases.Rows | None:
    """The rows below, or None where the step says that there are none."""
    if nothing:
        block.nothing_below()
        return None
    rows = _rows(block)
    if rows is None:
        raise block.wrong("there are no rows below, indented", f"write {FORMS['expect']}")
    return rows


def _letters(block: _Block) -> cases.Rows:
    """Dead letters: with column names above them, or each line a part of a reason."""
    lines = [(text, place) for text, place in block.body if not _blank(text)]
    if not lines:
        raise block.wrong("there are no dead letters below, indented", 'write "expect no dead letters"')
    if all(cell in _LETTERS for cell in _cells(*lines[0])):
        rows = _rows(block)
        assert rows is not None
        return rows
    return cases.Rows((_REASON,), tuple(cases.Line((t.strip(),), "+", t.strip(), p) for t, p in lines))


def _rows(block: _Block) -> cases.Rows | None:
    lines = [(text, place) for text, place in block.body if not _blank(text)]
    if not lines:
        return None
    columns = tuple(cell or "null" for cell in _cells(*lines[0]))
    if len(set(columns)) < len(columns):
        raise CaseError("a column is named here twice", location=lines[0][1])
    return cases.Rows(columns, tuple(_line(text.strip(), place, columns) for text, place in lines[1:]))


def _line(text: str, place: Location, columns: tuple[str, ...]) -> cases.Line:
    sign = text[0] if text[:2] in ("+ ", "- ") else ""
    cells = _cells(text[1:] if sign else text, place)
    if len(cells) != len(columns):
        raise CaseError(
            f"{len(cells)} cells stand below {len(columns)} columns",
            hint="cells are parted by |; a text that has one stands in 'quotes'",
            location=place,
        )
    return cases.Line(cells, sign or "+", text, place)


def _cells(text: str, place: Location) -> tuple[str | None, ...]:
    try:
        return split_cells(text.strip())
    except ValueError as exc:
        raise CaseError(str(exc), location=place) from None


def _first(head: str) -> str:
    return head.split(maxsplit=1)[0]


def _blank(text: str) -> bool:
    return not text.strip() or text.lstrip().startswith("#")


_STEPS: dict[str, Callable[[_Block], cases.Step]] = {
    "run": _run,
    "given": _given,
    "watermark": _watermark,
    "end": _end,
    "wait": _wait,
    "restart": _restart,
    "expect": _expect,
}
