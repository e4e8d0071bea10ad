"""A queue (SQS) as a client sees it: receiving and deleting messages, signed with the keys of AWS."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from velostream.errors import SourceAuthError, SourceConfigError, SourceMissingError, SourceNetworkError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.connectors.s3.options import S3Options
    from velostream.errors import SourceError

_MOST = 10
"""So many messages come with one answer, at most."""
_MARGIN_SECONDS = 15
_REFUSED = ("AccessDenied", "InvalidClientTokenId", "SignatureDoesNotMatch", "ExpiredToken", "Unrecognized")


@dataclass(frozen=True)
class Keys:
    """What requests are signed with."""

    id: str
    secret: str
    token: str | None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Whatever a queue answers, no other address is asked: only its own was checked."""

    def redirect_request(self, *_: Any) -> None:
        """Nothing: the answer becomes an error."""


_DIRECT = urllib.request.build_opener(_NoRedirects)


class Queue:
    """One queue; each call is a request of its own."""

    def __init__(self, url: str, keys: Keys, region: str) -> None:
        self._url, self._keys, self._region = url, keys, region

    def receive(self, seconds: int) -> list[tuple[str, str]]:
        """Messages, each with what deletes it; waits up to `seconds` for the first."""
        asked = {"MaxNumberOfMessages": _MOST, "WaitTimeSeconds": seconds}
        answer = self.ask("ReceiveMessage", asked, seconds + _MARGIN_SECONDS)
        return [(each["Body"], each["ReceiptHandle"]) for each in answer.get("Messages") or ()]

    def delete(self, receipts: list[str]) -> None:
        """Messages that need not come again."""
        if receipts:
            entries = [{"Id": str(number), "ReceiptHandle": each} for number, each in enumerate(receipts)]
            self.ask("DeleteMessageBatch", {"Entries": entries}, _MARGIN_SECONDS)

    def ask(self, action: str, body: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """The answer to one request of the queue's protocol; raises a SourceError."""
        content = json.dumps({"QueueUrl": self._url, **body}).encode()
        headers = signed(self._url, action, content, self._keys, self._region, datetime.now(UTC))
        request = urllib.request.Request(self._url, content, headers)  # noqa: S310 - checked by `queue_of`
        try:
            with _DIRECT.open(request, timeout=timeout) as answer:
                found = json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as exc:
            raise _refused(self._url, exc) from exc
        except (OSError, ValueError) as exc:
            raise SourceNetworkError(f'queue "{self._url}" cannot be asked: {exc}') from exc
        return found if isinstance(found, dict) else {}


def queue_of(options: S3Options) -> Queue:
    """The queue that the property `events` names."""
    url = options.events or ""
    if urlsplit(url).scheme not in ("http", "https"):
        raise SourceConfigError(f'"events" is the URL of a queue, which "{url}" is not')
    key = options.access_key_id or os.environ.get("AWS_ACCESS_KEY_ID")
    secret = options.secret_access_key or os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        raise SourceAuthError(
            f'queue "{url}" needs an access key',
            hint='set "access.key.id" and "secret.access.key", or the usual variables of AWS',
        )
    token = options.session_token or (
        os.environ.get("AWS_SESSION_TOKEN") if options.access_key_id is None else None
    )
    return Queue(url, Keys(key, secret, token), options.region or _region_in(url))


def _region_in(url: str) -> str:
    """The region of `sqs.REGION.amazonaws.com`."""
    parts = (urlsplit(url).hostname or "").split(".")
    return parts[1] if len(parts) > 2 and parts[0] == "sqs" else "us-east-1"


def signed(url: str, action: str, body: bytes, keys: Keys, region: str, now: datetime) -> dict[str, str]:
    """The headers of a request, with its signature (AWS Signature Version 4)."""
    parts = urlsplit(url)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {
        "content-type": "application/x-amz-json-1.0",
        "host": parts.netloc,
        "x-amz-date": stamp,
        "x-amz-target": f"AmazonSQS.{action}",
        **({"x-amz-security-token": keys.token} if keys.token else {}),
    }
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    hashed = hashlib.sha256(body).hexdigest()
    asked = f"POST\n{parts.path or '/'}\n{parts.query}\n{lines}\n{names}\n{hashed}"
    scope = f"{day}/{region}/sqs/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(asked.encode()).hexdigest()}"
    key = f"AWS4{keys.secret}".encode()
    for part in (day, region, "sqs", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    return {
        **headers,
        "authorization": f"AWS4-HMAC-SHA256 Credential={keys.id}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}",
    }


def _refused(url: str, exc: urllib.error.HTTPError) -> SourceError:
    said = exc.read(4096).decode(errors="replace")
    try:
        told = json.loads(said)
        kind = str(told.get("__type", "")).rpartition("#")[2]
        reason = str(told.get("message") or told.get("Message") or kind)
    except (ValueError, AttributeError):
        kind, reason = "", f"{exc.code} {exc.reason}"
    what = f'queue "{url}" cannot be read: {reason}'
    if "NonExistent" in kind or "DoesNotExist" in kind:
        return SourceMissingError(f'queue "{url}" does not exist')
    if exc.code in (401, 403) or any(word in kind for word in _REFUSED):
        return SourceAuthError(what, hint="the key needs sqs:ReceiveMessage and sqs:DeleteMessage")
    return SourceNetworkError(what)
