"""Connections to object stores, by Arrow's file systems; their errors become ours."""

from __future__ import annotations

import errno
import re
from contextlib import contextmanager
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


_CODE = re.compile(r"AWS Error ([A-Z_0-9]+)|\((\d{3}) |StatusCode[^0-9]*(\d{3})|HTTP status (\d{3})")
_AUTH = {
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "INVALID_CLIENT_TOKEN_ID",
    "EXPIRED_TOKEN",
    "MISSING_AUTHENTICATION_TOKEN",
    "UNRECOGNIZED_CLIENT",
    "401",
    "403",
}
_MISSING = {"NO_SUCH_BUCKET", "NO_SUCH_KEY", "RESOURCE_NOT_FOUND", "404"}
_WRONG = {"INVALID_ACTION", "INVALID_PARAMETER_VALUE", "VALIDATION", "400"}
_NOISE = re.compile(
    r"\s*\(Request ID: [^)]*\)|curlCode: \d+, |; Details: .*|^When [^:]*: |AWS Error \S+ during "
)
_SIGN_IN = 'set "access.key.id" and "secret.access.key", as ${env:NAME}, or the usual variables of AWS'


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
        )
    assert isinstance(options, GoogleOptions)
    return fs.GcsFileSystem(anonymous=options.anonymous, scheme=scheme, endpoint_override=place)


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
        return SourceAuthError(said, hint=_SIGN_IN)
    if code in _WRONG:
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
