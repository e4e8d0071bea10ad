"""`velo connector new`: a package of its own for a connector, which works and is tested as it is made."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING

from velostream.connectors.registry import default_registry
from velostream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NAME = re.compile(r"[a-z][a-z0-9]{1,39}")
_STAND_IN = "acme"
"""What the connector is called in the template."""
_TAKEN = frozenset({"any", "numbered", "source"})
"""Names that would make classes of the template what they derive from, such as `SourceOptions`."""
_PLACES: Mapping[str, str] = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "connector.py": "src/velostream_acme/__init__.py",
    "source.py": "src/velostream_acme/source.py",
    "sink.py": "src/velostream_acme/sink.py",
    "tests.py": "tests/test_acme.py",
}
"""Files of the template, and where each goes."""


def new_connector(name: str, folder: Path) -> list[Path]:
    """Make the package velostream-`name` in a folder that is not there yet, and return its files.

    Raises ConfigError where a connector cannot have this name, or the folder exists.
    """
    _check(name)
    if folder.exists():
        raise ConfigError(
            f'"{folder}" exists already', hint=f"velo connector new {name} --into another-folder"
        )
    if not folder.parent.is_dir():
        raise ConfigError(f'there is no folder "{folder.parent}"', hint="make it first")
    made = []
    for template, place in _PLACES.items():
        path = folder / _called(place, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (files(__name__) / "template" / f"{template}.template").read_text(encoding="utf-8")
        path.write_text(_called(text, name), encoding="utf-8")
        made.append(path)
    return made


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        plain = re.sub(r"^[0-9]+|[^a-z0-9]", "", name.lower())
        such = f", such as {plain}" if _NAME.fullmatch(plain) else ""
        raise ConfigError(
            f'a connector cannot be called "{name}": the name is also that of its address, name://',
            hint=f"two to forty lowercase letters and digits, a letter first{such}",
        )
    if name in _TAKEN:
        raise ConfigError(
            f'a connector cannot be called "{name}": it is a word of Velostream\'s own',
            hint="name it after the system that it reads or writes",
        )
    registry = default_registry()
    if name in registry.names() or name in registry.schemes():
        raise ConfigError(f'there is a connector "{name}" already', hint='velo sql "SHOW CONNECTORS" has all')


def _called(text: str, name: str) -> str:
    return text.replace(_STAND_IN, name).replace(_STAND_IN.capitalize(), name.capitalize())
