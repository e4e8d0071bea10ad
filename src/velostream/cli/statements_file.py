"""Reads a file of statements, with all the errors of that."""

from __future__ import annotations

import sys
from pathlib import Path

from velostream.errors import ConfigError, nearest

STDIN = "<stdin>"


def read_script(path: str) -> tuple[str, str]:
    """The text of a file and the name to show for it; `-` is standard input."""
    if path == "-":
        return _filled(read_stdin(), STDIN), STDIN
    file = Path(path)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f'file "{path}" does not exist', hint=_alike(file)) from None
    except IsADirectoryError:
        found = sorted(entry.name for entry in file.glob("*.sql"))
        hint = f"name one of its files: {', '.join(found)}" if found else "name a file of SQL statements"
        raise ConfigError(f'"{path}" is a directory', hint=hint) from None
    except OSError as exc:
        raise ConfigError(f'cannot read "{path}": {(exc.strerror or str(exc)).lower()}') from None
    return _filled(_decoded(content, path), path), path


def read_stdin() -> str:
    """Standard input, which is UTF-8 whatever the locale says."""
    return _decoded(sys.stdin.buffer.read(), STDIN)


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = content[: exc.start].count(b"\n") + 1
        raise ConfigError(
            f'"{name}" is not UTF-8: byte 0x{content[exc.start]:02x} in line {line}',
            hint=f"convert it: iconv -f latin1 -t utf-8 {name}",
        ) from None


def _filled(text: str, name: str) -> str:
    if not text.strip():
        raise ConfigError(f'"{name}" is empty', hint="write statements into it, each ended by a semicolon")
    return text


def _alike(file: Path) -> str | None:
    folder = file.parent
    if not folder.is_dir():
        return f'the folder "{folder}" does not exist'
    match = nearest(file.name, (entry.name for entry in folder.iterdir() if entry.is_file()))
    return f'did you mean "{folder / match}"?' if match else None
