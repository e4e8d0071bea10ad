"""The registry of connectors.

Built-in connectors and those of other packages are registered alike: by an entry point of the group
`velostream.connectors`, or with `register`. A connector's module declares options and imports nothing heavy,
so that the SQL front end can load all of them; drivers are imported when a source is opened.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

from velostream.connectors.base import Connector
from velostream.connectors.properties import PropertyInfo, describe_options, known_options
from velostream.errors import ConfigError, UnknownNameError, did_you_mean
from velostream.model.options import CommonOptions, Options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.metadata import EntryPoint

    from velostream.config import Settings
    from velostream.connectors.narrowing import Narrowing
    from velostream.model.statements import SourceRef
    from velostream.model.traits import SourceTraits
    from velostream.model.uri import Uri

GROUP = "velostream.connectors"

BUILT_IN: Mapping[str, str] = {
    "file": "velostream.connectors.file:FileConnector",
    "datagen": "velostream.connectors.datagen:DatagenConnector",
    "kafka": "velostream.connectors.kafka:KafkaConnector",
    "postgres": "velostream.connectors.postgres:PostgresConnector",
    "mysql": "velostream.connectors.mysql:MySqlConnector",
    "clickhouse": "velostream.connectors.clickhouse:ClickHouseConnector",
    "sql": "velostream.connectors.any_sql:SqlConnector",
    "http": "velostream.connectors.http:HttpConnector",
    "s3": "velostream.connectors.s3:S3Connector",
    "gs": "velostream.connectors.s3:GoogleConnector",
    "az": "velostream.connectors.s3:AzureConnector",
    "console": "velostream.connectors.console:ConsoleConnector",
    "delta": "velostream.connectors.delta:DeltaConnector",
    "iceberg": "velostream.connectors.iceberg:IcebergConnector",
}
"""Used when velostream is on the path without being installed, so that it has no entry points."""


class ConnectorWarning(UserWarning):
    """A connector of another package cannot be loaded."""


@dataclass(frozen=True)
class Registered:
    """A registered connector."""

    connector: Connector

    @property
    def name(self) -> str:
        """The connector's name, as in `SHOW PROPERTIES FOR name`."""
        return self.connector.name

    @property
    def options(self) -> type[Options]:
        """The model of the connector's own properties."""
        return self.connector.Options

    @property
    def reads(self) -> bool:
        """Whether it has sources."""
        return _overrides(self.connector, "source")

    @property
    def writes(self) -> bool:
        """Whether it has sinks."""
        return _overrides(self.connector, "sink")

    @property
    def installed(self) -> bool:
        """Whether its driver is there."""
        return self.connector.driver is None or find_spec(self.connector.driver) is not None

    @property
    def package(self) -> str | None:
        """What to install for its driver; None where nothing is needed."""
        if self.connector.driver is None:
            return None
        return f"velostream[{self.name}]" if self.name in BUILT_IN else self.connector.driver

    @property
    def system_columns(self) -> tuple[str, ...]:
        """System columns of its sources, besides those of all sources."""
        return self.connector.system_columns

    @property
    def parse(self) -> Callable[[Uri], Mapping[str, str]]:
        """The properties that a URI itself carries."""
        return type(self.connector).parse

    @property
    def uri_of(self) -> Callable[[str], Uri]:
        """The URI that a SQL function with this argument stands for."""
        return self.connector.uri_of


def _overrides(connector: Connector, method: str) -> bool:
    return getattr(type(connector), method) is not getattr(Connector, method)


class Registry:
    """Connectors by name, scheme and function; entry points are loaded on first use."""

    def __init__(self) -> None:
        self._by_name: dict[str, Registered] = {}
        self._broken: dict[str, ConfigError] = {}
        """Why connectors of other packages cannot be loaded, by the names of their entry points."""
        self._discovered = False
        self._lock = Lock()

    def register(self, connector: type[Connector] | Connector) -> type[Connector] | Connector:
        """Register a connector, replacing one of the same name; usable as a class decorator."""
        kind = connector if inspect.isclass(connector) else type(connector)
        if not issubclass(kind, Connector):
            raise ConfigError(f"{connector!r} is not a connector", hint="derive it from velostream.Connector")
        instance = connector() if isinstance(connector, type) else connector
        for attribute in ("name", "schemes", "Options"):
            if not hasattr(instance, attribute):
                raise ConfigError(f'connector {type(instance).__name__} does not define "{attribute}"')
        self._by_name[instance.name] = Registered(instance)
        return connector

    def forget(self, name: str) -> None:
        """Remove a connector."""
        self._by_name.pop(name, None)

    def names(self) -> tuple[str, ...]:
        """Every connector's name, sorted."""
        return tuple(sorted(self._all()))

    def schemes(self) -> tuple[str, ...]:
        """Every URI scheme, sorted."""
        return tuple(sorted(s for known in self._all().values() for s in known.connector.schemes))

    def functions(self) -> tuple[str, ...]:
        """Every SQL function that names a source, sorted."""
        return tuple(sorted(f for known in self._all().values() for f in known.connector.functions))

    def by_name(self, name: str) -> Registered:
        """The connector of this name; UnknownNameError with the nearest one otherwise."""
        found = self._all().get(name.lower())
        if found is None:
            self._check_loaded(name)
            raise UnknownNameError(f'unknown connector "{name}"', hint=did_you_mean(name, self.names()))
        return found

    def by_scheme(self, scheme: str) -> Registered | None:
        """The connector that owns a URI scheme, or None; raises why the one of that name cannot be loaded."""
        folded = scheme.lower()
        found = next((k for k in self._all().values() if folded in k.connector.schemes), None)
        if found is None:
            self._check_loaded(scheme)
        return found

    def by_function(self, function: str) -> Registered | None:
        """The connector that a SQL function such as `kafka_topic` belongs to, or None."""
        folded = function.lower()
        return next((k for k in self._all().values() if folded in k.connector.functions), None)

    def property_reference(self, connector: str | None = None) -> list[PropertyInfo]:
        """Every property: those of any source or statement under the name "any", then by connector."""
        lines = describe_options(CommonOptions, "any") if connector is None else []
        for name in self.names() if connector is None else (self.by_name(connector).name,):
            lines += describe_options(self.by_name(name).options, name)
        return lines

    def _all(self) -> Mapping[str, Registered]:
        with self._lock:
            if not self._discovered:
                self._discovered = True
                self._discover()
        return self._by_name

    def _discover(self) -> None:
        others = {
            point.name: point
            for point in entry_points(group=GROUP)
            if point.value != BUILT_IN.get(point.name)
        }
        for name, point in others.items():
            if name not in self._by_name:
                self._load_other(name, point)
        for name, target in BUILT_IN.items():
            if name not in self._by_name:
                self.register(_loaded(target))

    def _load_other(self, name: str, point: EntryPoint) -> None:
        """Register a connector of another package; one that cannot be loaded matters where it is used."""
        try:
            self.register(_loaded(point.value))
        except Exception as exc:
            package = point.dist.name if point.dist is not None else point.value
            self._broken[name.lower()] = ConfigError(
                f'connector "{name}" of package {package} cannot be loaded: {exc}',
                hint=f"install that package again, or remove it: pip uninstall {package}",
            )
            warnings.warn(self._broken[name.lower()].message, ConnectorWarning, stacklevel=2)

    def _check_loaded(self, name: str) -> None:
        broken = self._broken.get(name.lower())
        if broken is not None:
            raise ConfigError(broken.message, hint=broken.hint)


def _loaded(target: str) -> type[Connector]:
    module, _, attribute = target.partition(":")
    found: type[Connector] = getattr(import_module(module), attribute)
    return found


_registry = Registry()

names = _registry.names
schemes = _registry.schemes
functions = _registry.functions
by_name = _registry.by_name
by_scheme = _registry.by_scheme
by_function = _registry.by_function
property_reference = _registry.property_reference


def register(connector: type[Connector] | Connector) -> type[Connector] | Connector:
    """Register a connector, replacing one of the same name; usable as a class decorator."""
    return _registry.register(connector)


def default_registry() -> Registry:
    """The registry of this process, which `velostream.register` adds to."""
    return _registry


def connector_for(uri: Uri) -> Registered:
    """The connector of the URI's scheme; UnknownNameError names the nearest."""
    registry = default_registry()
    found = registry.by_scheme(uri.scheme)
    if found is None:
        raise UnknownNameError(
            f'no connector reads "{uri.scheme}://"', hint=did_you_mean(uri.scheme, registry.schemes())
        )
    return found


def said_of(
    connector: Registered, uri: Uri, properties: Mapping[str, str], settings: Settings | None
) -> dict[str, str]:
    """The connector's own properties: from the configuration, overridden by the URI, then the statement.

    `connection` names a table of the configuration, `[connections.name]`, whose properties stand below the
    URI's.
    """
    accepted = set(connector.options.property_names())
    configured = settings.properties(connector.name) if settings is not None else {}
    written = {**connector.parse(uri), **properties}
    named = settings.connections.get(written.get("connection", ""), {}) if settings is not None else {}
    for name in named:
        if name not in accepted:
            raise ConfigError(
                f'unknown property "{name}" of connection "{written["connection"]}"',
                hint=did_you_mean(name, accepted),
            )
    merged = {**configured, **named, **written}
    return {name: value for name, value in merged.items() if name in accepted}


def asked_of(ref: SourceRef, narrowing: Narrowing, settings: Settings | None = None) -> str | None:
    """The query that a statement's source sends; opens nothing and looks up no secret."""
    connector = connector_for(ref.uri)
    said = said_of(connector, ref.uri, ref.properties, settings)
    return connector.connector.asked(known_options(connector.options, said), narrowing)


def traits_of(
    ref: SourceRef, settings: Settings | None = None, *, table: bool, once: bool = False
) -> SourceTraits:
    """The traits of a statement's source; opens nothing and looks up no secret. See `Connector.traits`."""
    connector = connector_for(ref.uri)
    said = said_of(connector, ref.uri, ref.properties, settings)
    return connector.connector.traits(known_options(connector.options, said), table=table, once=once)
