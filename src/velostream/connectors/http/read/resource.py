"""A resource whose answers list all of its rows, read as a file is that is replaced now and then."""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from velostream.connectors.files.place import Listing, Place
from velostream.connectors.files.source import FilesSource
from velostream.connectors.files.spool.segments import Identity
from velostream.connectors.files.watch.layout import format_of
from velostream.connectors.http.client.requests import Requests
from velostream.connectors.http.read.pages import NOT_MODIFIED, Pages
from velostream.connectors.http.read.validators import validators_of
from velostream.disk.record import Record
from velostream.errors import SourceMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from velostream.connectors.base import SourceContext
    from velostream.connectors.http.options import HttpOptions

_JSON = ("json", "jsonl")


@dataclass(frozen=True)
class Content:
    """What the resource held when it was asked."""

    identity: Identity
    bytes: bytes | None
    """None where it is what an earlier start has read: then nothing of it is read again."""
    validators: dict[str, str]
    """Headers that ask whether it is still the same."""


class Resource(Place):
    """See `Place`: one file, whose name is the address. It is asked for once in each `poll.interval`."""

    grain = timedelta(0)
    compares = False

    def __init__(self, options: HttpOptions, requests: Requests, form: str, notes: Record) -> None:
        self._options = options
        self._requests = requests
        self._url = options.url or ""
        self._form = form
        self._pages = Pages(requests, options, raw=form not in _JSON)
        self._every = options.poll_interval.total_seconds()
        self._notes = notes
        self._asked_at: float | None = None
        self._content: Content | None = None
        self._missing: SourceMissingError | None = None

    def resume(self, known: Identity) -> None:
        """What was read at an earlier start need not be sent again, if it is still the same."""
        noted = self._notes.load() or {}
        if noted.get("identity") == list(known):
            self._content = Content(known, None, dict(noted["validators"]))

    @property
    def name(self) -> str:
        """See `Place`."""
        return self._url

    @property
    def several(self) -> bool:
        """See `Place`: a resource that is gone is an outage, and its rows stay."""
        return False

    # --- looking ------------------------------------------------------------------------------------------

    def check(self) -> Listing:
        """See `Place`."""
        found = self.look()
        if not found.files:
            assert self._missing is not None
            raise self._missing
        return found

    def look(self) -> Listing:
        """See `Place`: asks, where it is time to."""
        now = time.monotonic()
        if self._asked_at is None or now - self._asked_at >= self._every or self._content is None:
            self._ask()
            self._asked_at = now
        found = self._content
        return Listing({self._url: found.identity} if found is not None else {})

    def absent(self) -> str | None:
        """See `Place`."""
        return self._missing.message if self._missing is not None else None

    def _ask(self) -> None:
        before = self._content
        try:
            self._content = self._asked(before.validators if before is not None else {}) or before
            self._missing = None
        except SourceMissingError as exc:
            self._content, self._missing = None, exc

    def _asked(self, validators: dict[str, str]) -> Content | None:
        """The content of all pages; None where it is what it was."""
        found = []
        for page in self._pages.each(headers=validators):
            if page.answer.status == NOT_MODIFIED:
                return None
            found.append(page)
        parts = [page.answer.content for page in found] if self._form not in _JSON else []
        lines = [record for page in found for record in page.records]
        content = self._joined(parts) if parts else b"".join(line + b"\n" for line in lines)
        # The validators of one page say nothing of the others.
        kept = validators_of(found[0].answer) if len(found) == 1 else {}
        made = Content(_identity(content), content, kept)
        if self._options.watch is not False:
            self._notes.save({"identity": list(made.identity), "validators": kept})
        return made

    def _joined(self, parts: list[bytes]) -> bytes:
        """Pages as one content: the header line of CSV stands only once."""
        if self._form not in ("csv", "tsv"):
            return b"".join(parts)
        ended = [part if part.endswith(b"\n") or not part else part + b"\n" for part in parts]
        head = ended[0].partition(b"\n")[0] + b"\n"
        rest = [part.removeprefix(head) for part in ended[1:]] if self._options.header else ended[1:]
        return b"".join([ended[0], *rest])

    # --- reading ------------------------------------------------------------------------------------------

    @contextmanager
    def open(self, path: str) -> Iterator[IO[bytes]]:
        """See `Place`."""
        if self._content is None:
            raise FileNotFoundError(path)
        yield BytesIO(self._content.bytes or b"")

    def identity(self, path: str, stream: IO[bytes]) -> Identity:
        """See `Place`."""
        assert self._content is not None
        return self._content.identity

    def same(self, path: str, stream: IO[bytes]) -> bool:
        """See `Place`: an identity is made of the content."""
        return True

    def close(self) -> None:
        """See `Place`."""
        self._requests.close()


class ResourceSource(FilesSource):
    """See `FilesSource`: rows that an answer no longer lists are retracted."""

    def __init__(self, options: HttpOptions, context: SourceContext) -> None:
        form = form_of(options)
        requests = Requests(options, context.reach)
        notes = Record(context.spool / "answer.json", f"{context.owner} answer")
        self._resource = Resource(options, requests, form, notes)
        # What JSON lists is taken as lines, each record as it is written.
        super().__init__(
            self._resource, options.model_copy(update={"format": "jsonl" if form in _JSON else form}), context
        )
        read = self.spool.files.get(options.url or "")
        if read is not None:
            self._resource.resume(read.identity)

    def health(self) -> tuple[str, str | None]:
        """See `Source`."""
        missing = self._resource.absent()
        return ("disconnected", missing) if missing is not None else super().health()


def form_of(options: HttpOptions) -> str:
    """The form of the answers: as the statement says, else by the name in the address, else JSON."""
    return options.format or format_of(urlsplit(options.url or "").path) or "json"


def _identity(content: bytes) -> Identity:
    digest = hashlib.blake2b(content, digest_size=7).digest()
    return Identity(0, 0, len(content), int.from_bytes(digest, "little"))
