"""The profiles of the demo in a PostgreSQL of its own."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.devtools.demo import story
from velostream.devtools.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Accounts:
    """A server that runs, and the table in it."""

    server: PostgresServer

    @property
    def uri(self) -> str:
        """The address of the table, as statements name it."""
        server = self.server
        address = f"{server.user}:{server.password}@127.0.0.1:{server.port}"
        return f"postgresql://{address}/postgres?table=user_accounts"


@contextmanager
def kept(say: Callable[[str], None]) -> Iterator[Accounts]:
    """The accounts, for as long as the demo lasts."""
    server = PostgresServer()
    try:
        say("starting a PostgreSQL")
        server.make()
        server.start()
        server.psql(story.ACCOUNTS)
        yield Accounts(server)
    finally:
        server.stop()
        server.remove()
