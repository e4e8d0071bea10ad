"""The target of statements: a process that holds the directory, or the directory itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.errors import DataDirError, UnknownNameError, VelostreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from threading import Event
    from types import TracebackType

    from velostream.config import Settings
    from velostream.model.statements import Statement
    from velostream.runtime.answers.events import AnswerEvent
    from velostream.runtime.instance import Instance
    from velostream.runtime.socket.client import Client
    from velostream.runtime.statements.dml import Params
    from velostream.serving.durable.verification import TableReport


class Session:
    """Runs statements on a data directory, whichever process holds it.

    A free directory is opened for reading, without Spark and at once; the first statement that changes
    something opens it for writing, and then its jobs run too if `resume` says so.
    """

    def __init__(
        self, settings: Settings, *, resume: bool = False, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._settings = settings
        self._resume = resume
        self._tell = tell
        self._database: Instance | None = None

    def answers(
        self, text: str, params: Params = None, *, follow: bool, stop: Event, once: bool = False
    ) -> Generator[AnswerEvent]:
        """The results of the statements, one event after the other; see `events.answers`."""
        changing = changes(text)
        client = self._client()
        if client is not None:
            yield from self._answers_of(client, text, params, follow=follow, stop=stop, once=once)
            return
        from velostream.sql.check import in_turn

        for part in in_turn(text) if params is None else [text]:
            yield from self._answers(part, params, changing=changing, follow=follow, stop=stop, once=once)

    def _answers_of(
        self, client: Client, text: str, params: Params, *, follow: bool, stop: Event, once: bool
    ) -> Generator[AnswerEvent]:
        from velostream.runtime.answers.events import Answer

        there = client.elsewhere(text)
        if there is not None:
            self._tell(f"relative paths start at the folder of process {client.holder}: {there}")
        for event in client.answers(text, params, follow=follow, stop=stop, once=once):
            for note in event.result.notes if isinstance(event, Answer) else ():
                self._tell(note)
            yield event

    def _answers(
        self, text: str, params: Params, *, changing: bool, follow: bool, stop: Event, once: bool
    ) -> Generator[AnswerEvent]:
        from velostream.runtime.answers.events import run_all

        database = self._open(changing=changing)
        try:
            statements = database.check(text, params=params)
        except UnknownNameError as error:
            if error.hint is None and not database.directory.exists():
                where = self._settings.data_dir
                error.hint = f"there is no data directory {where}: go to its folder, or give --data-dir"
            raise
        if follow and database.read_only and any(map(_watches_tables, statements)):
            # Tables change only while somebody holds the directory and runs their jobs.
            self._resume = True
            database = self._open(changing=True)
        yield from run_all(database, statements, params, follow=follow, stop=stop, once=once)

    def unfinished(self) -> list[str]:
        """The jobs that run here and have not ended: nobody runs them once this is closed."""
        if self._database is None:
            return []
        return [job.name for job in self._database.jobs_by_name if job.state.alive]

    def relations(self) -> dict[str, list[str]]:
        """Every name that can be used in FROM, with its known columns."""
        try:
            client = self._client()
            if client is not None:
                return client.relations()
            from velostream.runtime.socket.operations import relations

            return relations(self._open(changing=False))
        except VelostreamError:
            return {}

    def verify(self) -> list[TableReport]:
        """Check the durable files of every table."""
        client = self._client()
        return client.verify() if client is not None else self._open(changing=False).verify()

    def _client(self) -> Client | None:
        if self._database is not None and not self._database.read_only:
            return None
        from velostream.runtime.socket.client import Client, held

        if not held(self._settings.data_dir):
            return None
        self.close()
        return Client(self._settings.data_dir)

    def _open(self, *, changing: bool) -> Instance:
        if self._database is not None and (not changing or not self._database.read_only):
            if self._database.read_only:
                # Another process may have written meanwhile: read the current state.
                self.close()
            else:
                return self._database
        self.close()
        from velostream.runtime.instance import Instance

        if not changing and self._settings.data_dir.is_file():
            raise DataDirError(f"{self._settings.data_dir} is a file, not a data directory")
        self._database = Instance(
            self._settings,
            read_only=not changing,
            resume=changing and self._resume,
            tell=self._tell,
            note=self._tell,
        )
        return self._database

    def close(self) -> None:
        """Release the directory, if it was opened here."""
        if self._database is not None:
            database, self._database = self._database, None
            database.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _watches_tables(statement: Statement) -> bool:
    from velostream.model.statements import SelectStatement

    if not isinstance(statement, SelectStatement):
        return False
    return statement.follows and not statement.query.continuous


def changes(text: str) -> bool:
    """Whether any statement of a text changes something; syntax errors are left to the binder."""
    import os

    from velostream.location import SourceText
    from velostream.sql.check import parse_script
    from velostream.sql.parse.syntax import RawExplain, RawNamed, RawSelect, RawShow

    parsed = parse_script(SourceText(text), os.environ)
    asks = (RawSelect, RawShow, RawNamed, RawExplain)
    return not parsed.errors and any(not isinstance(statement, asks) for _, statement in parsed.statements)
