"""A REST catalogue that does not wait for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.rest import RestCatalog
from requests.adapters import HTTPAdapter

if TYPE_CHECKING:
    from requests import PreparedRequest, Response, Session

TIMEOUT_SECONDS = (10.0, 60.0)
"""To connect, and between two bytes of an answer."""


class TimedRestCatalog(RestCatalog):
    """pyiceberg sets no time limit to its requests: a server that hangs would hold a job for ever."""

    def _config_headers(self, session: Session) -> None:
        """The first that is done with a session, before it fetches a token."""
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Timed())
        super()._config_headers(session)


class _Timed(HTTPAdapter):
    def send(self, request: PreparedRequest, *args: Any, **named: Any) -> Response:
        if named.get("timeout") is None:
            named["timeout"] = TIMEOUT_SECONDS
        return super().send(request, *args, **named)
