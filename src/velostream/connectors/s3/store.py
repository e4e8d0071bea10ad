"""Connections to object stores, by Arrow's file systems; their errors become ours."""

from __future__ import annotations

import errno
import re
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyarrow import fs

from velostream.connectors.s3.options import AzureOptions, GoogleOptions, ObjectOptions, S3Options
from velostream.errors import (
    SourceAuthError,
    SourceConfigError,
    SourceError,
    SourceMissingError,
    SourceNetworkError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


_CODE = re.compile(
    r"AWS Error ([A-Z_0-9]+)|Azure Error: \[\w*\] (\d{3})|google::cloud::Status\((\w+)|\((\d{3}) |"
    r"StatusCode[^0-9]*(\d{3})|HTTP status (\d{3})"
)
_AUTH = {
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "INVALID_CLIENT_TOKEN_ID",
    "EXPIRED_TOKEN",
    "MISSING_AUTHENTICATION_TOKEN",
    "UNRECOGNIZED_CLIENT",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "401",
    "403",
}
_MISSING = {"NO_SUCH_BUCKET", "NO_SUCH_KEY", "RESOURCE_NOT_FOUND", "NOT_FOUND", "404"}
_WRONG = {"INVALID_ACTION", "INVALID_PARAMETER_VALUE", "VALIDATION", "400"}
_DAMAGED = "checksums mismatch"
"""Bytes that were damaged on the way, or an object that was replaced while it was sent."""
_NOISE = re.compile(
    r"\s*\(Request ID: [^)]*\)|curlCode: \d+, |; Details: .*|^When [^:]*: |AWS Error \S+ during |"
    r"\s*RequestId:.*|\s*error_info=.*|google::cloud::Status\(\w+: |"
    r"Retry policy exhausted, with a last message of |PerformWork\(\) - |CURL error \[\d+\]="
)
_SIGN_IN = {
    "Azure": 'set "account.key" or "sas.token", as ${env:NAME}',
    "google": "set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account",
}
"""How to sign in, by a word in the store's error."""
_SIGN_IN_S3 = 'set "access.key.id" and "secret.access.key", as ${env:NAME}, or the usual variables of AWS'


def open_store(options: ObjectOptions) -> fs.FileSystem:
    """The file system that holds the bucket; asks nothing but, without a `region`, where the bucket is."""
    if not options.bucket:
        raise SourceConfigError("an object store needs a bucket", hint="write s3://bucket/prefix/*.csv")
    scheme, place = _endpoint(options.endpoint)
    if isinstance(options, S3Options):
        return fs.S3FileSystem(
            access_key=options.access_key_id,
            secret_key=options.secret_access_key,
            session_token=options.session_token,
            anonymous=options.anonymous,
            role_arn=options.role,
            region=options.region or _region(options),
            scheme=scheme,
            endpoint_override=place,
            connect_timeout=options.connect_timeout.total_seconds(),
            # Small objects are put in one request, of which a crash leaves nothing.
            allow_delayed_open=True,
        )
    if isinstance(options, AzureOptions):
        if options.account is None:
            raise SourceConfigError('az:// needs the property "account"', hint="the storage account's name")
        return fs.AzureFileSystem(
            options.account,
            account_key=options.account_key,
            sas_token=options.sas_token,
            blob_storage_authority=place,
            blob_storage_scheme=scheme,
            # Whether the account has real folders is asked of its other service.
            dfs_storage_authority=place,
            dfs_storage_scheme=scheme,
        )
    assert isinstance(options, GoogleOptions)
    return fs.GcsFileSystem(
        anonymous=options.anonymous,
        scheme=scheme,
        endpoint_override=place,
        # Without a limit a store that cannot be reached is tried for a quarter of an hour.
        retry_time_limit=max(options.connect_timeout, timedelta(seconds=1)),
    )


def _endpoint(text: str | None) -> tuple[str | None, str | None]:
    """Scheme and address of an endpoint, as Arrow wants them."""
    if text is None:
        return None, None
    parts = urlsplit(text if "://" in text else f"https://{text}")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SourceConfigError(f'"{text}" is no address of a service', hint="write http(s)://host:port")
    return parts.scheme, f"{parts.netloc}{parts.path.rstrip('/')}"


def _region(options: S3Options) -> str:
    if options.endpoint is not None:
        return "us-east-1"
    assert options.bucket is not None
    with translated(f'the region of bucket "{options.bucket}" cannot be found out'):
        return str(fs.resolve_s3_region(options.bucket))


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turns an error of the store into a SourceError; `what` could not be done."""
    try:
        yield
    except OSError as exc:
        raise error_of(exc, what) from exc


def error_of(exc: OSError, what: str) -> SourceError:
    """Our error for one of Arrow's, by the code of the service in its text."""
    code = _code(exc)
    said = f"{what}: {_said(exc)}"
    if isinstance(exc, FileNotFoundError) or code in _MISSING:
        return SourceMissingError(said)
    if code in _AUTH:
        hint = next((way for word, way in _SIGN_IN.items() if word in str(exc)), _SIGN_IN_S3)
        return SourceAuthError(said, hint=hint)
    if code in _WRONG and _DAMAGED not in str(exc):
        return SourceConfigError(said)
    return SourceNetworkError(said)


def of_one(exc: OSError) -> OSError | None:
    """The error of a file, for an object that is gone or may not be read; None for other errors."""
    code = _code(exc)
    if isinstance(exc, FileNotFoundError) or code in _MISSING:
        return FileNotFoundError(errno.ENOENT, "no such object")
    if code in ("ACCESS_DENIED", "403"):
        return PermissionError(errno.EACCES, "access denied")
    return None


def _code(exc: OSError) -> str:
    found = _CODE.search(str(exc))
    return next((part for part in found.groups() if part), "") if found else ""


def _said(exc: OSError) -> str:
    text = _NOISE.sub("", " ".join(str(exc).split())).strip().rstrip(".")
    if text.startswith("HeadObject operation: No response body"):
        text = _code(exc).replace("_", " ").lower()
    text = re.sub(r"^\w+ operation: ", "", text)
    return text[:1].lower() + text[1:]
