"""Client of a Confluent-compatible schema registry: schemas by id, and the schemas of a subject.

Used by the driver only; executors get the schemas by value. A registry that does not answer is a network
error, which is retried; an id that it does not know makes the record bad.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib import error, request
from urllib.parse import quote, unquote, urlsplit

from velostream.errors import SourceAuthError, SourceConfigError, SourceError, SourceNetworkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMEOUT = 10.0
"""Timeout of a registry's answer, in seconds."""
_LARGEST_ANSWER = 8 * 1024 * 1024
_MOST_REFERENCES = 200
_MEDIA = "application/vnd.schemaregistry.v1+json"
_UNAUTHORIZED = (401, 403)
_MISSING = 404
_INCOMPATIBLE = 409
_UNPROCESSABLE = 422
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")


@dataclass(frozen=True)
class Reference:
    """Another schema that a schema refers to by a name."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Registered:
    """A registered schema."""

    id: int
    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[Reference, ...] = ()


@dataclass
class Registry:
    """One registry. The schema of an id never changes, and is cached."""

    url: str = field(repr=False)
    """http or https; it may contain user and password, which are never shown."""
    timeout: float = TIMEOUT
    _known: dict[int, Registered] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url.strip())
            port = parts.port
        except ValueError as exc:
            raise SourceConfigError(f"the URL of the schema registry is not one: {exc}") from exc
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        if parts.scheme not in ("http", "https") or not _HOST.fullmatch(host) or parts.query:
            raise SourceConfigError(
                "the URL of the schema registry must be http:// or https:// and a host",
                hint='"schema.registry.url" = "http://localhost:8081"',
            )
        self.place = f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
        self._headers = {"Accept": f"{_MEDIA}, application/json"}
        if parts.username is not None:
            secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(secret).decode('ascii')}"

    def by_id(self, number: int) -> Registered | None:
        """The schema of an id; None when the registry does not know it."""
        with self._lock:
            found = self._known.get(number)
        if found is None:
            answer = self._ask(f"/schemas/ids/{number}")
            if answer is None:
                return None
            found = _registered(number, answer)
            with self._lock:
                self._known[number] = found
        return found

    def latest(self, subject: str) -> Registered | None:
        """The newest schema of a subject; None when there is none."""
        return self.version(subject, "latest")

    def version(self, subject: str, version: int | str) -> Registered | None:
        """One version of a subject's schema."""
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}")
        if answer is None:
            return None
        found = _registered(_whole(answer, "id"), answer)
        with self._lock:
            self._known[found.id] = found
        return found

    def referenced(self, schema: Registered) -> dict[str, Registered]:
        """All schemas that a schema refers to, directly or indirectly, by the names it uses."""
        found: dict[str, Registered] = {}
        left = list(schema.references)
        while left:
            reference = left.pop()
            if reference.name in found:
                continue
            if len(found) >= _MOST_REFERENCES:
                raise SourceConfigError(f"schema {schema.id} uses more than {_MOST_REFERENCES} others")
            used = self.version(reference.subject, reference.version)
            if used is None:
                raise SourceConfigError(
                    f'schema {schema.id} uses version {reference.version} of "{reference.subject}", '
                    "which the registry does not have"
                )
            found[reference.name] = used
            left += used.references
        return found

    def register(self, subject: str, kind: str, text: str, references: Sequence[Reference] = ()) -> int:
        """The id of a schema under a subject. Idempotent: registered unless it is already."""
        body: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            body["schemaType"] = kind
        if references:
            body["references"] = [vars(reference) for reference in references]
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions", body)
        if answer is None:
            raise SourceConfigError(f'{self.place} has no place for the schema of "{subject}"')
        return _whole(answer, "id")

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer's JSON; None when the requested entity does not exist."""
        headers = dict(self._headers)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = _MEDIA
        asked = request.Request(self.place + path, data=data, headers=headers)  # noqa: S310 - http(s) only
        try:
            with _opener().open(asked, timeout=self.timeout) as answer:
                return self._parsed(answer.read(_LARGEST_ANSWER + 1))
        except error.HTTPError as exc:
            with exc:
                return self._refused(exc, path)
        except (OSError, ValueError) as exc:
            # The HTTPException of a broken answer is neither, and is handled below.
            raise self._unreachable(exc) from exc
        except Exception as exc:
            from http.client import HTTPException

            if isinstance(exc, HTTPException):
                raise self._unreachable(exc) from exc
            raise

    def _unreachable(self, exc: Exception) -> SourceNetworkError:
        reason = getattr(exc, "reason", None) or exc
        return SourceNetworkError(f"schema registry {self.place} cannot be reached: {reason}")

    def _parsed(self, raw: bytes) -> Any:
        if len(raw) > _LARGEST_ANSWER:
            raise SourceConfigError(f"schema registry {self.place}: an answer is larger than 8 MB")
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise SourceConfigError(
                f"{self.place} does not answer like a schema registry",
                hint='is "schema.registry.url" right?',
            )
        return answer

    def _refused(self, exc: error.HTTPError, path: str) -> None:
        """None for something that does not exist; raises for every other refusal."""
        said = exc.read(_LARGEST_ANSWER)
        try:
            told = json.loads(said)
            code, message = told.get("error_code"), str(told.get("message", ""))
        except (ValueError, AttributeError, RecursionError):
            code, message = None, ""
        if exc.code == _MISSING:
            if code is not None:
                return
            raise SourceConfigError(
                f"{self.place} does not answer like a schema registry: no {path}",
                hint='is "schema.registry.url" right?',
            )
        raise self._category(exc.code, message or str(exc.reason))

    def _category(self, status: int, message: str) -> SourceError:
        if status in _UNAUTHORIZED:
            return SourceAuthError(f"schema registry {self.place} refuses us: {message}")
        if status in (_INCOMPATIBLE, _UNPROCESSABLE):
            return SourceConfigError(f"schema registry {self.place} does not take the schema: {message}")
        if status >= 500 or status in (408, 429):
            return SourceNetworkError(f"schema registry {self.place} fails: {status} {message}")
        return SourceConfigError(f"schema registry {self.place}: {status} {message}")


def _opener() -> request.OpenerDirector:
    """HTTP and HTTPS only, and no redirects: a registry must not send us to another host."""
    opener = request.OpenerDirector()
    handlers = (
        request.ProxyHandler(),
        request.HTTPHandler(),
        request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(),
        request.HTTPErrorProcessor(),
    )
    for handler in handlers:
        opener.add_handler(handler)
    return opener


def _registered(number: int, answer: Mapping[str, Any]) -> Registered:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise SourceConfigError(f"the registry's answer for schema {number} holds no schema")
    try:
        references = tuple(
            Reference(str(r["name"]), str(r["subject"]), int(r["version"]))
            for r in answer.get("references") or ()
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise SourceConfigError(f"the registry's answer for schema {number} is malformed") from exc
    return Registered(number, str(answer.get("schemaType") or "AVRO"), text, references)


def _whole(answer: Mapping[str, Any], name: str) -> int:
    value = answer.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise SourceConfigError(f'the registry\'s answer has no "{name}"')
    return value
