"""Finds the one root cause, in plain words, in messages of Java, Spark and its Python workers.

Works on text only: a failure may be described by an exception, by its chain of causes, or by a message that
quotes the stack of another process. The result has no stack, class name or object of a library.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST = 500
_FRAME = re.compile(r"^\s*(at\s+[\w$./<>@:-]+\(|\.\.\. \d+ more|Driver stacktrace:|JVM stacktrace:)")
_HEAD = re.compile(
    r"^(?:Caused by: |: |\s*Suppressed: )?(?P<name>(?:[a-zA-Z_]\w*\.)+[A-Z][\w$]*)(?:: (?P<text>.*))?$"
)
_LOST_TASK = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\)(?: \([^()]*\))?: (?P<inner>.*)")
_CALLED = re.compile(r"^An error occurred while calling \S+\s*(?:Trace:)?$")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s*(.*)")
_ERRNO = re.compile(r"error=\d+, ")
_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})\b")
TRACEBACK = "Traceback (most recent call last):"
"""The beginning of a Python traceback; its last line is what was raised."""
RAISED_BY = "a Python function raised: "
"""The beginning of what a user's function raised, where it names the function and its arguments."""
_AROUND = (
    "INTERNAL_ERROR",
    "STREAM_FAILED",
    "TASK_WRITE_FAILED",
    "FAILED_EXECUTE_UDF",
    "FAILED_READ_FILE.NO_HINT",
    "_LEGACY_ERROR",
)
"""Prefixes of Spark's error names that only say where another error happened."""
_LOST = {
    re.compile(r"^Python worker (exited|failed)"): "a Python worker of Spark ended while it computed",
    re.compile(
        r"^ExecutorLostFailure.*?(?:Reason: (?P<why>.*))?$", re.MULTILINE
    ): "an executor of Spark was lost",
}
"""Messages that say more than their cause, which is a broken connection."""
_WORDS = {
    "OutOfMemoryError": "out of memory",
    "SparkOutOfMemoryError": "out of memory",
    "StackOverflowError": "the expression is nested too deeply",
    "FileNotFoundException": "file not found",
    "NoSuchFileException": "file not found",
    "AccessDeniedException": "permission denied",
    "UnknownHostException": "unknown host",
    "ClassNotFoundException": "a class is missing",
    "NoClassDefFoundError": "a class is missing",
}
"""Meanings of exceptions whose message is only the name of a thing, or empty."""


@dataclass(frozen=True)
class _Told:
    """One exception of a chain."""

    name: str
    text: str

    @property
    def condition(self) -> str | None:
        """Spark's name for the error, such as DIVIDE_BY_ZERO."""
        match = _CONDITION.search(self.text)
        return match[1] if match else None

    @property
    def informs(self) -> bool:
        return self.name in _WORDS or bool(self.text.strip(" .:\n"))


def root_cause(said: str) -> str:
    """The root cause in plain words."""
    told = [each for each in _chain(said) if each.informs]
    for each in told:
        for pattern, words in _LOST.items():
            match = pattern.match(each.text)
            if match is not None:
                why = match.groupdict().get("why")
                return f"{words}: {plain(why)}" if why else words
    for each in reversed(told):
        if TRACEBACK in each.text:
            return _shortened(_raised(each.text))
    named = [each for each in told if each.condition and not each.condition.startswith(_AROUND)]
    # What only repeats the system's error says less than the message around it, which names the program.
    said_more = [each for each in told if not _ERRNO.match(each.text)] or told
    found = [*_chain(said), *said_more, *named][-1]
    match = _CONDITION.search(found.text)
    text = plain((match[2] or match[1]) if match else found.text)
    meaning = _WORDS.get(found.name)
    return f"{meaning}: {text}" if meaning and text else meaning or text or _spaced(found.name)


def conditions(said: str) -> list[str]:
    """Spark's names for all errors in the text, from outside in."""
    return [match[1] for match in _CONDITION.finditer(said)]


def states(said: str) -> set[str]:
    """The SQLSTATEs of all errors in the text."""
    return set(_STATE.findall(said))


def plain(text: str) -> str:
    """The first line of a message, without codes, stacks and class names; lowercase, no final period."""
    line = next((each.strip() for each in text.splitlines() if each.strip() and not _FRAME.match(each)), "")
    line = re.sub(r"\s*SQLSTATE: \w+.*", "", line)
    line = re.sub(r"^An error occurred while calling \S+?\.?$", "", line)
    # Java class names: their meaning is in the message, or in the last part of the name.
    line = re.sub(r"\b(?:[a-z_][\w$]*\.){2,}([A-Z][\w$]*)", lambda match: match[1], line)
    line = re.sub(r"^[A-Z][\w$]*(?:Exception|Error): (?=\S)", "", line)
    line = re.sub(r"^[A-Z]+(?:_[A-Z]+)+: (?=\S)", "", line)
    line = line.strip().rstrip(".;:").strip()
    return _shortened(line[:1].lower() + line[1:])


def _chain(said: str) -> Iterator[_Told]:
    """The exceptions in a text, from outside in."""
    name, lines = "", list[str]()
    suppressed = False
    for line in said.splitlines():
        if _FRAME.match(line) or _CALLED.match(line):
            continue
        head = _HEAD.match(line)
        if head is None:
            lines.append(line)
            continue
        if not suppressed:
            yield from _told(name, lines)
        suppressed = line.lstrip().startswith("Suppressed: ")
        name, lines = head["name"].rpartition(".")[2].rpartition("$")[2], [head["text"] or ""]
    if not suppressed:
        yield from _told(name, lines)


def _told(name: str, lines: list[str]) -> Iterator[_Told]:
    text = "\n".join(lines).strip()
    yield _Told(name, text)
    # A failure on an executor is quoted in one line.
    match = _LOST_TASK.search(text)
    if match is not None:
        head = _HEAD.match(match["inner"])
        rest = text[match.end() :]
        if head is None:
            yield _Told("", match["inner"] + rest)
        else:
            yield _Told(head["name"].rpartition(".")[2], (head["text"] or "") + rest)


def _raised(text: str) -> str:
    """What a Python function raised: the line after the calls of its last traceback."""
    after = text[text.rindex(TRACEBACK) :].splitlines()[1:]
    line = next((line.strip() for line in after if line.strip() and not line[0].isspace()), "")
    return line.removeprefix("RuntimeError: ") if RAISED_BY in line else line


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _spaced(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()
