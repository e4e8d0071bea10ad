"""The registry of drivers."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

from velostream.connectors.any_sql.drivers.base import Driver
from velostream.errors import ConfigError, SourceConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP = "velostream.drivers"
_HOME = "velostream.connectors.any_sql.drivers"
BUILT_IN: Mapping[str, str] = {
    "sqlite": f"{_HOME}.sqlite:SqliteDriver",
    "duckdb": f"{_HOME}.duck:DuckDriver",
    "jdbc": f"{_HOME}.jdbc:JdbcDriver",
    "postgresql": f"{_HOME}.alchemy:PostgresDriver",
    "mysql": f"{_HOME}.alchemy:MySqlDriver",
    "mariadb": f"{_HOME}.alchemy:MySqlDriver",
}
_registered: dict[str, Driver] = {}
_lock = Lock()


def register_driver(driver: type[Driver] | Driver) -> type[Driver] | Driver:
    """Register a driver, replacing one of the same name; usable as a class decorator."""
    kind = driver if inspect.isclass(driver) else type(driver)
    if not issubclass(kind, Driver):
        raise ConfigError(
            f"{driver!r} is not a driver",
            hint="derive it from velostream.connectors.any_sql.drivers.base.Driver",
        )
    made = driver() if isinstance(driver, type) else driver
    if not hasattr(made, "name"):
        raise ConfigError(f'driver {type(made).__name__} does not define "name"')
    with _lock:
        _registered[made.name] = made
    return driver


def forget_driver(name: str) -> None:
    """Remove a driver that was registered."""
    with _lock:
        _registered.pop(name, None)


def driver_names() -> list[str]:
    """Every name, sorted; dialects of SQLAlchemy have further ones of their own."""
    return sorted({*BUILT_IN, *_registered, *(point.name for point in entry_points(group=GROUP))})


def driver_named(name: str | None) -> Driver:
    """The driver of this name.

    A name that is not registered may be one of SQLAlchemy's, such as `mysql+pymysql`. Raises
    SourceConfigError with the nearest name, or with the package that is missing.
    """
    if not name:
        raise SourceConfigError("sql:// names no driver", hint=_known("sql://driver:connection"))
    found = _registered.get(name) or _loaded(name)
    if found is None:
        from velostream.connectors.any_sql.drivers.alchemy import dialect_driver

        found = dialect_driver(name)
    if found is None:
        raise SourceConfigError(
            f'no driver is called "{name}"', hint=_known(did_you_mean(name, driver_names()))
        )
    for module, package in found.packages.items():
        if find_spec(module) is None:
            raise SourceConfigError(
                f'driver "{name}" needs the package {package}', hint=f"pip install '{package}'"
            )
    return found


def _loaded(name: str) -> Driver | None:
    points = {point.name: point.value for point in entry_points(group=GROUP)}
    where = points.get(name) or BUILT_IN.get(name)
    if where is None:
        return None
    module, _, attribute = where.partition(":")
    try:
        made = getattr(import_module(module), attribute)()
    except (ImportError, AttributeError) as exc:
        raise ConfigError(f'driver "{name}" ({where}) cannot be loaded: {exc}') from exc
    assert isinstance(made, Driver)
    return made


def _known(first: str | None) -> str:
    told = f"there are: {', '.join(driver_names())}, and dialects of SQLAlchemy such as mysql+pymysql"
    return f"{first}; {told}" if first else told
