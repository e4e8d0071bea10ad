"""Which files and addresses statements may access: all, unless the configuration restricts them."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from velostream.errors import UnsafeError

_WILDCARD = re.compile(r"[*?{\[]")


@dataclass(frozen=True)
class Reach:
    """`allowed.roots` and `allowed.hosts`; None allows everything, an empty list nothing."""

    roots: tuple[Path, ...] | None = None
    hosts: tuple[str, ...] | None = None

    def check_file(self, given: str | Path) -> None:
        """Raise UnsafeError unless a file, folder or pattern is in one of the roots, links followed."""
        if self.roots is None:
            return
        written = Path(given).expanduser().absolute()
        path = Path(os.path.abspath(written))  # noqa: PTH100 - resolve() would follow links
        roots = [root.expanduser().resolve() for root in self.roots]
        # `..` means different folders before and after following a link, and a pattern may match outside.
        for real in (path.resolve(), _without_wildcards(path).resolve(), written.resolve()):
            if not any(real == root or root in real.parents for root in roots):
                leads = f', which leads to "{real}",' if real not in (path, *path.parents) else ""
                raise UnsafeError(
                    f'"{path}"{leads} is outside of the folders that statements may reach',
                    hint=f"allowed.roots has {', '.join(map(str, self.roots)) or 'no folder'}",
                )

    def check_addresses(self, given: str) -> None:
        """Raise UnsafeError unless each address, `host:port` or a URL, is one of the hosts."""
        if self.hosts is None:
            return
        for part in filter(None, (part.strip() for part in given.split(","))):
            address = urlsplit(part if "://" in part else f"//{part}").netloc.rpartition("@")[2].lower()
            host = re.sub(r":\d*$", "", address).strip("[]")
            if not any(
                fnmatchcase(one, pattern.lower()) for pattern in self.hosts for one in (host, address)
            ):
                raise UnsafeError(
                    f'"{address}" is none of the hosts that statements may reach',
                    hint=f"allowed.hosts has {', '.join(self.hosts) or 'no host'}",
                )

    def check_resolved(self, host: str, port: int, address: str) -> None:
        """Raise UnsafeError where a host leads to a private address that `hosts` does not name itself.

        A name that may be reached says nothing of where it leads: whoever owns it could point it, also only
        for a moment, at a service that trusts its own network.
        """
        if self.hosts is None or host.strip("[]") in (address, "localhost"):
            return
        ip = ipaddress.ip_address(address.partition("%")[0])
        ip = getattr(ip, "ipv4_mapped", None) or ip
        if ip.is_global and not ip.is_multicast:
            return
        try:
            self.check_addresses(f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}")
        except UnsafeError as exc:
            raise UnsafeError(
                f'"{host}" leads to the private address {ip}, which statements may not reach', hint=exc.hint
            ) from exc


def _without_wildcards(path: Path) -> Path:
    """The folder that a pattern searches; a path without wildcards unchanged."""
    parts: list[str] = []
    for part in path.parts:
        if _WILDCARD.search(part) and not Path(*parts, part).exists():
            break
        parts.append(part)
    return Path(*parts)
