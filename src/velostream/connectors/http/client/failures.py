"""Errors of requests, by what the server answered or why it could not."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

from velostream.errors import (
    SourceAuthError,
    SourceConfigError,
    SourceError,
    SourceMissingError,
    SourceNetworkError,
)

if TYPE_CHECKING:
    from velostream.connectors.http.client.answers import Answer

_SHOWN = 200
"""Characters of a refusal that are told."""
_LATER = {408, 409, 421, 423, 425, 429}
"""Refusals that say nothing about the request: the same one may succeed later."""


def reason_of(exc: BaseException) -> str:
    """Why a request failed, in the style of our messages."""
    if isinstance(exc, TimeoutError):
        return "it took too long"
    if isinstance(exc, ssl.SSLError):
        return f"TLS failed: {getattr(exc, 'verify_message', '') or exc.reason or exc}"
    text = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
    return text[:1].lower() + text[1:]


def unreachable(where: str, exc: BaseException) -> SourceError:
    """The error for a request that got no answer."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return SourceConfigError(
            f"{where}: its certificate is not trusted: {exc.verify_message}",
            hint='name the authority that signed it: "ssl.root.cert"',
        )
    return SourceNetworkError(f"{where} cannot be reached: {reason_of(exc)}")


def unusable(where: str, why: str) -> SourceNetworkError:
    """The error for an answer that is damaged, or no answer to what was asked: the next may be better."""
    return SourceNetworkError(f"{where} sent an answer that cannot be used: {why}")


def refused(where: str, answer: Answer) -> SourceError:
    """The error for an answer whose status is none of success."""
    status = answer.status
    told = f"{status} {_phrase(status)}".strip()
    said = _said(answer)
    what = f"{where} answered {told}{f': {said}' if said else ''}"
    if status in (401, 403, 407):
        return SourceAuthError(what, hint='see "auth" and "headers": WITH ("auth" = "bearer ${env:TOKEN}")')
    if status in (404, 410):
        return SourceMissingError(
            f"{where} does not exist: it answered {told}",
            hint='check the address; or wait for it: WITH ("wait.timeout" = "30s")',
        )
    if not final(status):
        return SourceNetworkError(what, retry_after=answer.pause(datetime.now(UTC)))
    return SourceConfigError(what)


def final(status: int) -> bool:
    """Whether a refusal is about the request itself, so that the same one would be refused again."""
    return 400 <= status < 500 and status not in _LATER


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _said(answer: Answer) -> str:
    if "html" in answer.kind:
        return ""
    text = " ".join(answer.content[: 4 * _SHOWN].decode(errors="replace").split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
