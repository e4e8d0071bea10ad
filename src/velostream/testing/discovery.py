"""Finds case files."""

from __future__ import annotations

from pathlib import Path

from velostream.errors import ConfigError, nearest
from velostream.testing.parser import ENDING, Parsed, read_cases


def find_cases(*paths: str | Path) -> Parsed:
    """The cases of files, and of all case files below folders; ConfigError when there are none."""
    files = [file for path in paths or (".",) for file in _files(Path(path))]
    found = [read_cases(file) for file in dict.fromkeys(files)]
    return Parsed(
        tuple(case for part in found for case in part.cases),
        tuple(error for part in found for error in part.errors),
    )


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        hidden = {".git", ".venv", "node_modules", ".velostream"}
        files = sorted(file for file in path.rglob(f"*{ENDING}") if not hidden & set(file.parts))
        if not files:
            raise ConfigError(f'there is no case file in "{path}"', hint=f"case files end in {ENDING}")
        return files
    if not path.exists():
        names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        match = nearest(path.name, names)
        raise ConfigError(
            f'"{path}" does not exist', hint=f'did you mean "{path.parent / match}"?' if match else None
        )
    return [path]
