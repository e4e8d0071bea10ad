"""Catalogues, and the errors of everything behind them as ours."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import requests
import sqlalchemy
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
    ValidationError,
)

from velostream.connectors.iceberg.durable_files import NAME
from velostream.connectors.iceberg.rest import TimedRestCatalog
from velostream.errors import (
    SinkAuthError,
    SinkConfigError,
    SinkError,
    SinkMissingError,
    SinkNetworkError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from velostream.connectors.iceberg.options import IcebergOptions
    from velostream.model.reach import Reach

CATALOG_FILE = "catalog.db"
_FILES = {"py-io-impl": NAME}
_FORBIDDEN = (UnauthorizedError, ForbiddenError, AuthorizationExpiredError, OAuthError)
_LATER = (
    CommitStateUnknownException,
    ServiceUnavailableError,
    TooManyRequestsError,
    ServerError,
    requests.RequestException,
)


def open_catalog(options: IcebergOptions, *, make: bool) -> Catalog:
    """The catalogue that the options name; a warehouse of this machine is made, where `make` says so."""
    if options.path is not None:
        folder = Path(options.path).expanduser().absolute()
        if any(mark in str(folder) for mark in "?#%"):
            raise SinkConfigError(f'"{folder}" has a character that addresses of files do not have')
        if not (folder / CATALOG_FILE).exists():
            if not make:
                raise SinkMissingError(
                    f'"{folder}" holds no {CATALOG_FILE}',
                    hint='check the path; or WITH ("table.create.if.missing" = "true")',
                )
            folder.mkdir(parents=True, exist_ok=True)
        address = sqlalchemy.URL.create("sqlite", database=str(folder / CATALOG_FILE))
        return SqlCatalog(
            options.catalog_name,
            uri=address.render_as_string(hide_password=False),
            warehouse=f"file://{folder}",
            **_FILES,
        )
    if options.uri is None:
        named = f': the configuration has none for "{options.connection}"' if options.connection else ""
        raise SinkConfigError(
            f"iceberg:// needs a catalogue{named}",
            hint='write iceberg:///warehouse/namespace.table, or give the "uri" of a REST catalogue',
        )
    return TimedRestCatalog(options.catalog_name, **_rest_properties(options), **_FILES)


def _rest_properties(options: IcebergOptions) -> dict[str, str]:
    given = {
        "uri": options.uri,
        "warehouse": options.warehouse,
        "token": options.token,
        "credential": options.credential,
        "oauth2-server-uri": options.oauth_address or f"{(options.uri or '').rstrip('/')}/v1/oauth/tokens",
        "scope": options.scope,
        "s3.endpoint": options.endpoint,
        "s3.region": options.region,
        "s3.access-key-id": options.access_key_id,
        "s3.secret-access-key": options.secret_access_key,
        "s3.session-token": options.session_token,
    }
    return {name: value for name, value in given.items() if value is not None}


def identifier(options: IcebergOptions) -> tuple[str, ...]:
    """Namespaces and name of the table."""
    parts = tuple(part for part in (options.table or "").split(".") if part)
    if len(parts) < 2:
        raise SinkConfigError(
            f'"{options.table or ""}" names no table of Iceberg', hint="write namespace.table"
        )
    return parts


def check_reach(options: IcebergOptions, catalog: Catalog, table: Table, reach: Reach) -> None:
    """Raise UnsafeError where the catalogue leads to a place that statements may not reach.

    Places that the properties name were checked, or are the operator's choice.
    """
    place = urlsplit(table.location())
    if options.uri is not None and catalog.properties.get("uri") != options.uri:
        reach.check_addresses(str(catalog.properties.get("uri")))
    if place.scheme in ("", "file"):
        named = Path(options.path).expanduser().absolute() if options.path is not None else None
        if named is None or named.resolve() not in Path(place.path).resolve().parents:
            reach.check_file(place.path)
        return
    store = str(table.io.properties.get("s3.endpoint") or "")
    if store and store == options.endpoint:
        return
    usual = f"{place.netloc}.s3.amazonaws.com" if place.scheme.startswith("s3") else place.netloc
    reach.check_addresses(store or usual)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turns errors of catalogues and files into those of sinks; `what` could not be done."""
    try:
        yield
    except (NoSuchTableError, NoSuchNamespaceError) as exc:
        raise SinkMissingError(
            f"{what}: {_said(exc)}", hint='create it; or WITH ("table.create.if.missing" = "true")'
        ) from exc
    except _FORBIDDEN as exc:
        hint = 'give a "token" or a "credential", as ${env:NAME}'
        raise SinkAuthError(f"{what}: {_said(exc)}", hint=hint) from exc
    except _LATER as exc:
        raise SinkNetworkError(f"{what}: {_said(exc)}") from exc
    except (ValidationError, ValueError, NotImplementedError) as exc:
        raise SinkConfigError(f"{what}: {_said(exc)}") from exc
    except (RESTError, sqlalchemy.exc.SQLAlchemyError, OSError) as exc:
        raise SinkError(f"{what}: {_said(exc)}") from exc


def _said(exc: Exception) -> str:
    text = next((line for line in str(exc).splitlines() if line.strip()), type(exc).__name__).strip()
    return text[:1].lower() + text[1:].rstrip(".")
