"""Settings: flags over environment over configuration file over defaults.

The file is `velostream.toml` in the working directory, or the one that `--config` or VELOSTREAM_CONFIG
names:

    data_dir = "/var/lib/app"          # relative paths start at the file's own folder
    master = "spark://host:7077"
    memory_total = "8GB"
    dead_letters_retention = "30d"
    allowed.roots = ["/data", "in"]    # folders that statements may read and write; without it, all
    allowed.hosts = ["*.internal"]     # hosts that statements may name; without it, all

    [conf]                             # Spark's own settings
    spark.executor.memory = "4g"

    [connections.warehouse]            # a name for postgres://warehouse/orders
    host = "db1"
    password = "${env:DB_PASSWORD}"

    [defaults]                         # properties of every source and statement
    on.error = "fail"

    [kafka]                            # properties of every kafka source and sink
    bootstrap.servers = "broker:9092"
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from velostream.errors import ConfigError, did_you_mean
from velostream.model.durations import Duration  # noqa: TC001 - pydantic needs it
from velostream.model.reach import Reach

FILE_NAME = "velostream.toml"
ENV_PREFIX = "VELOSTREAM_"

PROPERTY_VARIABLES: Mapping[str, tuple[str, str]] = {
    "VELOSTREAM_KAFKA_BROKERS": ("kafka", "bootstrap.servers"),
    "VELOSTREAM_RETRY_STRATEGY": ("kafka", "topic.retry.strategy"),
    "VELOSTREAM_RETRY_INTERVAL_SECS": ("kafka", "topic.retry.interval"),
    "VELOSTREAM_RETRY_MULTIPLIER": ("kafka", "topic.retry.multiplier"),
    "VELOSTREAM_RETRY_MAX_DELAY_SECS": ("kafka", "topic.retry.max.delay"),
    "VELOSTREAM_DEFAULT_PARTITIONS": ("kafka", "topic.partitions"),
    "VELOSTREAM_DEFAULT_REPLICATION_FACTOR": ("kafka", "topic.replication"),
}
"""Environment variables that set a property of a connector, whose options read them."""

_OTHER_VARIABLES = ("VELOSTREAM_CONFIG", "VELOSTREAM_IVY_SETTINGS", "VELOSTREAM_TEST_SEED")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_SCALE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(text: str) -> int:
    """The bytes of `512MB`, `2g` or `1.5 GiB` (units of 1024); ValueError names the valid form."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text}" is not a size; write it like 512MB or 2GB')
    return int(float(match[1]) * _SCALE[match[2].lower()])


def machine_memory() -> int:
    """Bytes of memory available to this process: the machine's, or its control group's if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(limit).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def cache_home() -> Path:
    """The folder of things that any run can create again: `$XDG_CACHE_HOME/velostream`."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given and Path(given).is_absolute() else Path.home() / ".cache") / "velostream"


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A TOML table as properties: `a.b = 1` and `[a] b = 1` are both `{"a.b": "1"}`."""
    flat: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            flat[prefix + key] = str(value).lower()
        elif isinstance(value, list):
            flat[prefix + key] = ",".join(str(item) for item in value)
        else:
            flat[prefix + key] = str(value)
    return flat


Properties = Annotated[
    dict[str, str], BeforeValidator(lambda table: flatten(table) if isinstance(table, Mapping) else table)
]
Size = Annotated[int, BeforeValidator(lambda size: parse_size(size) if isinstance(size, str) else size)]


class Allowed(BaseModel):
    """Restrictions on what statements may access; None where there is none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: tuple[Path, ...] | None = Field(None, description="folders, with all that is in them")
    hosts: tuple[str, ...] | None = Field(
        None, description="hosts, host:port, or patterns such as *.internal"
    )


class Settings(BaseSettings):
    """All settings, validated; made by `load`."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    data_dir: Path = Field(Path(".velostream"), description="where tables, jobs and logs live")
    master: str | None = Field(None, description="Spark master; all cores of this machine unless given")
    conf: Properties = Field(default_factory=dict, description="Spark's own settings")
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="serve Prometheus metrics on this port"
    )
    memory_per_table: Size | None = Field(None, gt=0, description="most bytes that one table may take")
    memory_total: Size = Field(
        default_factory=lambda: machine_memory() // 2, gt=0, description="most bytes for all tables together"
    )
    dead_letters_retention: Duration = Field(
        timedelta(days=7), description="how long dead letters are kept; 0s keeps them for ever"
    )
    dead_letters_memory: Size = Field(
        256 << 20, gt=0, description="most bytes for dead letters; the oldest leave first"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level to log")
    allowed: Allowed = Field(
        default_factory=Allowed, description="which files and hosts statements may reach"
    )
    connections: dict[str, Properties] = Field(default_factory=dict, description="named connections")
    defaults: Properties = Field(default_factory=dict, description="properties of every source and statement")
    connectors: dict[str, Properties] = Field(
        default_factory=dict, description="properties per connector, from its own table of the file"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then environment, then the file that `load` has read."""
        return init_settings, env_settings, _FileSource(settings_cls)

    @property
    def reach(self) -> Reach:
        """The restrictions of `allowed`."""
        return Reach(self.allowed.roots, self.allowed.hosts)

    def properties(self, connector: str) -> dict[str, str]:
        """A connector's properties from the file, by property name.

        Those that an environment variable sets are left out: the connector's options read the variable, and
        name it where it does not fit.
        """
        merged = self.defaults | self.connectors.get(connector, {})
        set_outside = {
            name
            for variable, (owner, name) in PROPERTY_VARIABLES.items()
            if owner == connector and os.environ.get(variable)
        }
        return {name: value for name, value in merged.items() if name not in set_outside}


def load(config_file: Path | str | None = None, **flags: Any) -> Settings:
    """The effective settings.

    `flags` are fields of Settings; None means that the flag was not given. Raises ConfigError, naming file
    and key, for a file that is missing or malformed, an unknown key, or a value that does not fit.
    """
    path = _file(config_file)
    content = _read(path) if path else {}
    _check_variables()
    given = {name: value for name, value in flags.items() if value is not None}
    token = _FileSource.content
    _FileSource.content = content
    try:
        return Settings(**given)
    except ValidationError as exc:
        raise _translate(exc, given, path) from exc
    except SettingsError as exc:
        raise _unreadable_variable(exc) from exc
    finally:
        _FileSource.content = token


class _FileSource(PydanticBaseSettingsSource):
    """The values that `load` has read from the file, next in precedence after the environment."""

    content: Mapping[str, Any] = {}

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self.content.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(self.content)


def _file(given: Path | str | None) -> Path | None:
    named = given or os.environ.get("VELOSTREAM_CONFIG")
    if named:
        return Path(named)
    found = Path(FILE_NAME)
    return found if found.is_file() else None


def _read(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f'cannot read configuration file "{path}": {exc.strerror}') from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f'configuration file "{path}" is not valid TOML', detail=str(exc)) from exc
    content: dict[str, Any] = {}
    connectors: dict[str, Any] = {}
    for key, value in table.items():
        if key in Settings.model_fields and key != "connectors":
            content[key] = value
        elif isinstance(value, Mapping) and key in _connector_names():
            connectors[key] = value
        else:
            raise _unknown_key(path, key, value)
    if connectors:
        content["connectors"] = connectors
    if "data_dir" in content:
        content["data_dir"] = path.parent / str(content["data_dir"])
    allowed = content.get("allowed")
    if isinstance(allowed, Mapping) and isinstance(allowed.get("roots"), list):
        content["allowed"] = {**allowed, "roots": [path.parent / str(root) for root in allowed["roots"]]}
    return content


def _unreadable_variable(exc: SettingsError) -> ConfigError:
    """The error for a variable whose value is no JSON, where the setting is a table of values."""
    found = re.search(r'field "(\w+)"', str(exc))
    name = ENV_PREFIX + found[1].upper() if found else "an environment variable"
    return ConfigError(f"{name} cannot be read: it is not JSON", hint='write it like {"name": "value"}')


def _unknown_key(path: Path, key: str, value: object) -> ConfigError:
    fields = [name for name in Settings.model_fields if name != "connectors"]
    if isinstance(value, Mapping):
        return ConfigError(
            f'{path}: unknown table "[{key}]"', hint=did_you_mean(key, [*fields, *_connector_names()])
        )
    return ConfigError(f'{path}: unknown key "{key}"', hint=did_you_mean(key, fields))


def _connector_names() -> set[str]:
    """Names of the installed connectors, without importing any."""
    from importlib.metadata import entry_points

    return {point.name for point in entry_points(group="velostream.connectors")}


def _check_variables() -> None:
    """Refuse a misspelt variable; names that resemble none of ours belong to the user."""
    known = {ENV_PREFIX + name.upper() for name in Settings.model_fields}
    known |= {*PROPERTY_VARIABLES, *_OTHER_VARIABLES}
    suffixes = {name.removeprefix(ENV_PREFIX): name for name in known}
    for name in os.environ:
        if not name.startswith(ENV_PREFIX) or name in known:
            continue
        match = get_close_matches(name.removeprefix(ENV_PREFIX), suffixes, n=1, cutoff=0.8)
        if match:
            raise ConfigError(
                f'unknown environment variable "{name}"', hint=f'did you mean "{suffixes[match[0]]}"?'
            )


def _translate(exc: ValidationError, flags: Mapping[str, Any], path: Path | None) -> ConfigError:
    problem = exc.errors()[0]
    name = str(problem["loc"][0])
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return ConfigError(f'unknown setting "{key}"', hint=did_you_mean(name, Settings.model_fields))
    if name in flags:
        where = f"--{name.replace('_', '-')}"
    elif ENV_PREFIX + name.upper() in os.environ:
        where = ENV_PREFIX + name.upper()
    else:
        where = f'{path}: "{key}"'
    return ConfigError(f"{where}: {problem['msg'].removeprefix('Value error, ')}")
