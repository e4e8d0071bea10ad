"""`catalog.json` and its copies, with checksums, and with the identity of their data directory."""

from __future__ import annotations

import logging
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from velostream.disk.full_disk import storing
from velostream.disk.private import make_folder
from velostream.disk.sealed_json import Sealed, replace_file, seal, unseal
from velostream.errors import CorruptDataError, DataDirError
from velostream.runtime.datadir import FORMAT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

log = logging.getLogger("velostream.catalog")

_KEPT = 3
"""The number of copies to keep."""
_COPY = re.compile(r"catalog-(\d{10})\.json")


@dataclass(frozen=True)
class Copy:
    """A copy of the catalogue whose checksum is right."""

    path: Path
    content: Sealed


class CatalogFile:
    """The catalogue file: read once, then replaced atomically for every change; each change is copied.

    The file holds the id of its directory and a write counter. By these and the copies, a file of another
    directory, or an older state of this one, is recognised.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "catalog.json"
        self.copies = root / "copies"
        self.content: Sealed | None = None
        """The content last read or written."""

    # --- reading --------------------------------------------------------------------------------------------

    def read(self) -> dict[str, Any] | None:
        """The content of the file; None when there is none. CorruptDataError names the last good copy."""
        try:
            content = unseal(self.path.read_bytes())
        except FileNotFoundError:
            if self.good_copies():
                raise self.refusal("is missing") from None
            return None
        except OSError as exc:
            raise self.refusal(f"cannot be read: {(exc.strerror or str(exc)).lower()}") from exc
        except ValueError as exc:
            raise self.refusal(f"is damaged: {exc}") from exc
        self._check(content)
        self.content = content
        return content.value

    def _check(self, content: Sealed) -> None:
        form = content.value.get("format", 0)
        if not isinstance(form, int) or not isinstance(content.value.get("entries"), list):
            raise self.refusal("is damaged: it holds no entries")
        if form > FORMAT:
            raise DataDirError(
                f"data directory {self.root} has format {form}, this version reads {FORMAT}",
                hint="use a newer velostream",
            )
        if form > 1 and (not content.checked or content.of is None):
            raise self.refusal("is damaged: it has no checksum")
        copies = self.good_copies()
        own = [copy for copy in copies if copy.content.of == content.of]
        if len(own) < len(copies) - len(own):
            raise self.refusal("is the catalogue of another data directory")
        if own and own[0].content.number > content.number:
            raise self.refusal("is older than its own copies")

    def good_copies(self) -> list[Copy]:
        """The copies with a right checksum, newest first."""
        found = []
        for path in self._copy_paths():
            try:
                content = unseal(path.read_bytes())
            except (OSError, ValueError):
                continue
            if content.of is not None and path == self._copy(content.number):
                found.append(Copy(path, content))
        return found

    def last_copy(self) -> Copy | None:
        """The newest copy that belongs to this directory, which is the one most copies belong to."""
        copies = self.good_copies()
        names = [copy.content.of for copy in copies]
        return max(copies, key=lambda copy: (names.count(copy.content.of), copy.content.number), default=None)

    def refusal(self, why: str) -> CorruptDataError:
        """The error for a catalogue that was not last written here, with instructions how to repair it."""
        last = self.last_copy()
        source = str(last.path) if last is not None else "the tables' own descriptions"
        return CorruptDataError(
            f"{self.path} {why}",
            detail="nothing was changed, and nothing is deleted",
            hint=f"velo doctor --repair --data-dir {self.root} puts it back from {source}",
        )

    # --- writing --------------------------------------------------------------------------------------------

    def write(self, value: dict[str, Any]) -> None:
        """Replace the file and copy it; StorageError, with the old file in place, when the disk refuses."""
        before = self.content or Sealed({})
        content = Sealed({"format": FORMAT, **value}, before.of or uuid.uuid4().hex[:16], before.number + 1)
        text = seal(content.value, content.of, content.number)
        with storing(self.path):
            replace_file(self.path, text)
        self.content = content
        self._keep_copy(text)

    def replace(self, value: dict[str, Any], before: Sealed | None) -> None:
        """Write a catalogue that continues from `before`, whatever the file contains now."""
        numbers = [copy.content.number for copy in self.good_copies()]
        before = before or Sealed({})
        self.content = Sealed({}, before.of, max([before.number, *numbers]))
        self.write(value)

    def _keep_copy(self, text: bytes) -> None:
        """Write a copy. It is only a means of recovery, so a refusal of the disk is logged and not raised."""
        assert self.content is not None
        try:
            make_folder(self.copies)
            replace_file(self._copy(self.content.number), text)
            newest = [path for path in self._copy_paths() if path <= self._copy(self.content.number)]
            for path in set(self._copy_paths()) - set(newest[:_KEPT]):
                path.unlink()
        except OSError as exc:
            log.warning("%s has no copy: %s", self.path, exc)

    def renew_copies(self) -> None:
        """After opening: ensure a good copy of the current file; delete damaged copies and foreign ones."""
        own = self._own_copies()
        if own and own[0].content == self.content and len(own) == len(self._copy_paths()):
            return
        bad = set(self._copy_paths()) - {copy.path for copy in own}
        told = f"{', '.join(map(str, sorted(bad)))} damaged" if bad else "missing"
        log.warning("copies of %s were made again: %s", self.path, told)
        for path in bad:
            path.unlink(missing_ok=True)
        self._keep_copy(self.path.read_bytes())

    @property
    def sealed(self) -> bool:
        """Whether the file that was read has a checksum; a file of an earlier version has none."""
        return self.content is not None and self.content.of is not None

    def _own_copies(self) -> list[Copy]:
        of = self.content.of if self.content is not None else None
        return [copy for copy in self.good_copies() if copy.content.of == of]

    def _copy(self, number: int) -> Path:
        return self.copies / f"catalog-{number:010d}.json"

    def _copy_paths(self) -> Sequence[Path]:
        found = self.copies.iterdir() if self.copies.is_dir() else ()
        return sorted((path for path in found if _COPY.fullmatch(path.name)), reverse=True)
