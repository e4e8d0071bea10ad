"""Objects of a bucket: one, those under a prefix, or those that match a pattern."""

from __future__ import annotations

import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from io import BytesIO
from typing import IO, TYPE_CHECKING

from pyarrow import fs

from velostream.connectors.files.place import Listing, Place, is_pattern, matcher
from velostream.connectors.files.spool.segments import Identity
from velostream.connectors.s3.store import error_of, of_one, open_store, translated
from velostream.errors import SourceMissingError, nearest, numbered

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Mapping, Sequence
    from threading import Event

    import pyarrow as pa

    from velostream.connectors.s3.events import Events
    from velostream.connectors.s3.options import ObjectOptions

_FETCHED_WHOLE = 64 << 20
"""A larger object is read in parts."""
_AHEAD_BYTES = 128 << 20
"""So much content is fetched ahead of its use."""
_OPENED_AGAIN = 5
_SECOND = 1_000_000_000
_GRAIN_SECONDS = 2
_SHOWN = 5


class Fetched(BytesIO):
    """The content of one version of an object."""

    def __init__(self, content: bytes, identity: Identity, tag: str) -> None:
        super().__init__(content)
        self.identity = identity
        self.tag = tag


class Prefix(Place):
    """See `Place`. A name is `s3://bucket/key`.

    A listing tells size and time, the time in whole seconds: an object that was written again within the same
    second may look the same. Its tag (ETag), which comes with its content, tells.
    """

    grain = timedelta(seconds=_GRAIN_SECONDS)
    clocks = timedelta(minutes=10)
    compares = False

    def __init__(self, scheme: str, options: ObjectOptions, events: Events | None = None) -> None:
        self._events = events
        self._last: Listing | None = None
        self._listed_at = 0.0
        self._scheme = scheme
        self._options = options
        self._bucket = options.bucket or ""
        self._key = (options.path or "").lstrip("/")
        self._sizes: dict[str, int] = {}
        self._newest = 0
        self._tags: dict[str, str] = {}
        self._ahead: OrderedDict[str, Future[IO[bytes]]] = OrderedDict()
        self._waiting: list[str] = []
        self._bytes_ahead = 0
        self._pool: ThreadPoolExecutor | None = None
        self._every = options.poll_interval.total_seconds()

    @cached_property
    def store(self) -> fs.FileSystem:
        """The connection."""
        return open_store(self._options)

    @property
    def name(self) -> str:
        """See `Place`."""
        return f"{self._scheme}://{self._bucket}/{self._key}"

    @property
    def several(self) -> bool:
        """See `Place`: a key that ends in a slash is a prefix."""
        return not self._key or self._key.endswith("/") or is_pattern(self._key)

    @cached_property
    def _folder(self) -> str:
        """The bucket and the part of the key before the first wildcard, up to a slash."""
        fixed = []
        for part in self._key.split("/")[:-1]:
            if is_pattern(part):
                break
            fixed.append(part)
        return "/".join([self._bucket, *fixed])

    @cached_property
    def _wanted(self) -> re.Pattern[str] | None:
        rest = f"{self._bucket}/{self._key}"[len(self._folder) + 1 :]
        return matcher(rest) if is_pattern(rest) else None

    @cached_property
    def _recursive(self) -> bool:
        rest = f"{self._bucket}/{self._key}"[len(self._folder) + 1 :]
        return self._wanted is None or "/" in rest or "**" in rest

    # --- looking --------------------------------------------------------------------------------------

    def listen(self, news: Event) -> None:
        """See `Place`: events of the bucket tell."""
        if self._events is not None:
            self._events.start(news)

    def look(self) -> Listing:
        """See `Place`: everything is listed, or what events named since then is looked at."""
        named = self._events.take() if self._events is not None else set()
        listing = self._last
        if listing is not None and time.monotonic() - self._listed_at < self._every:
            listing.files.update(self._named(listing, named))
            listing.files = dict(sorted(listing.files.items()))
        else:
            self._listed_at = time.monotonic()
            listing = self._everything()
        self._last = listing if self._events is not None and listing.files else None
        # The clock that dates objects is past the latest of them; a time in our future would be a mistake.
        now = time.time_ns()
        times = (identity.mtime_ns for identity in listing.files.values() if identity.mtime_ns <= now)
        self._newest = max(self._newest, max(times, default=0))
        self._sizes = {name: identity.size for name, identity in listing.files.items()}
        return Listing(dict(listing.files))

    def _named(self, listing: Listing, keys: set[str]) -> Iterator[tuple[str, Identity]]:
        start = len(self._folder) + 1
        for key in keys:
            path = f"{self._bucket}/{key}"
            if path.startswith(f"{self._folder}/") and self._is_wanted(path[start:]):
                listing.files.pop(f"{self._scheme}://{path}", None)
                with translated(f"{self._scheme}://{path} cannot be looked at"):
                    info = self.store.get_file_info(path)
                if info.type == fs.FileType.File:
                    yield f"{self._scheme}://{path}", _identity(info)

    def _everything(self) -> Listing:
        try:
            found = self._listed()
        except OSError as exc:
            error = error_of(exc, f"{self.name} cannot be listed")
            # A bucket that is gone for now is an outage, told by `absent`; its rows stay.
            if isinstance(error, SourceMissingError):
                return Listing()
            raise error from exc
        return Listing(dict(sorted((f"{self._scheme}://{info.path}", _identity(info)) for info in found)))

    def _listed(self) -> list[fs.FileInfo]:
        if not self.several:
            info = self.store.get_file_info(f"{self._bucket}/{self._key}")
            return [info] if info.type == fs.FileType.File else []
        selector = fs.FileSelector(self._folder, recursive=self._recursive, allow_not_found=True)
        start = len(self._folder) + 1
        return [
            info
            for info in self.store.get_file_info(selector)
            if info.type == fs.FileType.File and self._is_wanted(info.path[start:])
        ]

    def _is_wanted(self, name: str) -> bool:
        """Hidden names, markers of folders and unfinished files (`.tmp`, `_…`) are left out."""
        if name.endswith(("/", ".tmp", ".partial")) or any(part[:1] in "._" for part in name.split("/")):
            return False
        return self._wanted is None or self._wanted.fullmatch(name) is not None

    def outlived(self, identity: Identity) -> bool:
        """See `Place`."""
        return identity.mtime_ns + _GRAIN_SECONDS * _SECOND <= self._newest

    def absent(self) -> str | None:
        """See `Place`: the bucket or the object does not exist."""
        if not self._bucket_is_there():
            return f'bucket "{self._bucket}" does not exist'
        return None if self.several else f"{self.name} does not exist"

    def _bucket_is_there(self) -> bool:
        try:
            return bool(self.store.get_file_info(self._bucket).type == fs.FileType.Directory)
        except OSError as exc:
            raise error_of(exc, f'bucket "{self._bucket}" cannot be reached') from exc

    def check(self) -> Listing:
        """See `Place`."""
        found = self.look()
        if not found.files:
            raise self._missing()
        return found

    def _missing(self) -> SourceMissingError:
        if not self._bucket_is_there():
            options = ["check the name of the bucket, its region and its endpoint", _WAIT]
            return SourceMissingError(f'bucket "{self._bucket}" does not exist', detail=numbered(options))
        there = self._there()
        shown = ", ".join(there[:_SHOWN]) + (
            f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
        )
        looked = f'looked in "{self._scheme}://{self._folder}/", which holds {shown or "nothing"}'
        if self.several:
            return SourceMissingError(
                f"no object matches {self.name}", detail=numbered([f"check the pattern: {looked}", _WAIT])
            )
        options = [f"check the key: {looked}", _WAIT]
        close = nearest(self._key.rpartition("/")[2], there)
        if close is not None:
            options.append(f'did you mean "{self._scheme}://{self._folder}/{close}"?')
        if any(name == self._key.rpartition("/")[2] + "/" for name in there):
            options.append(f'read all objects under it: "{self.name}/"')
        return SourceMissingError(f"{self.name} does not exist", detail=numbered(options))

    def _there(self) -> list[str]:
        try:
            found = self.store.get_file_info(fs.FileSelector(self._folder, allow_not_found=True))
        except OSError:
            return []
        return sorted(f"{info.base_name}{'/' * (info.type == fs.FileType.Directory)}" for info in found)

    # --- reading --------------------------------------------------------------------------------------

    def expect(self, paths: Sequence[str]) -> None:
        """See `Place`: the content of small objects is fetched by threads, which wait for the network."""
        self.forget()
        # What was read already is opened again only to compare its tag.
        self._waiting = [path for path in reversed(paths) if path not in self._tags and self._whole(path)]
        self._fetch_ahead()

    def _whole(self, path: str) -> bool:
        return self._sizes.get(path, 0) <= _FETCHED_WHOLE

    def _fetch_ahead(self) -> None:
        most = self._options.parallel_readers
        while self._waiting and len(self._ahead) < most and self._bytes_ahead < _AHEAD_BYTES:
            path = self._waiting.pop()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(most, thread_name_prefix="fetches objects")
            self._bytes_ahead += self._sizes.get(path, 0)
            self._ahead[path] = self._pool.submit(self._fetch, path)

    def _fetch(self, path: str) -> IO[bytes]:
        """The content of an object, of one version of it; unread where its tag is that of what was taken.

        Reads of a stream that follow each other may be of different versions, so that rows and what is kept
        to compare them with would differ: all is read at once.
        """
        stream: IO[bytes] = self._opened(path)
        told = stream.metadata() or {}  # type: ignore[attr-defined]
        tag = _tag(told)
        if tag and tag == self._tags.get(path):
            return stream
        with stream:
            content = stream.read()
        identity = _told(told, len(content)) or self._identity_now(path)
        return Fetched(content, identity, tag)

    def _opened(self, path: str) -> pa.NativeFile:
        for _ in range(_OPENED_AGAIN):
            stream = self.store.open_input_file(self._place(path))
            if not stream.closed:
                return stream
            # Arrow's client of Google's store does that when the object is replaced while it is opened.
        raise FileNotFoundError(path)

    @contextmanager
    def open(self, path: str) -> Iterator[IO[bytes]]:
        """See `Place`."""
        future = self._ahead.pop(path, None)
        try:
            if future is not None:
                stream: IO[bytes] = future.result()
                self._bytes_ahead -= self._sizes.get(path, 0)
                self._fetch_ahead()
            elif self._whole(path):
                stream = self._fetch(path)
            else:
                stream = self._opened(path)
        except OSError as exc:
            raise (of_one(exc) or error_of(exc, f"{path} cannot be read")) from exc
        with stream:
            try:
                yield stream
            except OSError as exc:
                raise (of_one(exc) or error_of(exc, f"{path} cannot be read")) from exc

    def identity(self, path: str, stream: IO[bytes]) -> Identity:
        """See `Place`."""
        return stream.identity if isinstance(stream, Fetched) else self._identity_now(path)

    def _identity_now(self, path: str) -> Identity:
        info = self.store.get_file_info(self._place(path))
        if info.type != fs.FileType.File:
            raise FileNotFoundError(path)
        return _identity(info)

    def same(self, path: str, stream: IO[bytes]) -> bool | None:
        """See `Place`: by its tag."""
        tag = self._tag_of(stream)
        return tag == self._tags[path] if tag and path in self._tags else None

    def took(self, path: str, stream: IO[bytes]) -> None:
        """See `Place`."""
        self._tags[path] = self._tag_of(stream)

    def took_nothing(self) -> None:
        """See `Place`: content is compared, as after a restart."""
        self._tags.clear()

    def _tag_of(self, stream: IO[bytes]) -> str:
        return stream.tag if isinstance(stream, Fetched) else _tag(stream.metadata() or {})  # type: ignore[attr-defined]

    def _place(self, path: str) -> str:
        return path.removeprefix(f"{self._scheme}://")

    def forget(self) -> None:
        """Give up what is being fetched ahead."""
        for future in self._ahead.values():
            future.cancel()
        self._ahead.clear()
        self._waiting, self._bytes_ahead = [], 0

    def close(self) -> None:
        """See `Place`."""
        self.forget()
        if self._events is not None:
            self._events.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


_WAIT = 'wait for it:         WITH ("wait.timeout" = "30s")'


def _identity(info: fs.FileInfo) -> Identity:
    """Size and time: listings of some stores tell fractions of a second, and answers with content do not."""
    return Identity(0, 0, info.size, (info.mtime_ns or 0) // _SECOND * _SECOND)


def _told(metadata: Mapping[str, bytes], size: int) -> Identity | None:
    """The identity that comes with the content; None where it does not tell the time in a form we know."""
    try:
        moment = datetime.fromisoformat(metadata["Last-Modified"].decode())
    except (KeyError, ValueError):
        return None
    return Identity(0, 0, size, int(moment.timestamp()) * _SECOND)


def _tag(metadata: Mapping[str, bytes]) -> str:
    return (metadata.get("ETag") or metadata.get("etag") or b"").decode()
