"""Lifetimes: how long an object may be used, and the error afterwards; waiting for a condition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from threading import Condition, get_ident
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from velostream.errors import ClosedError, SourceEmptyError

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

_GLANCE = 0.02
"""Seconds between two evaluations."""


class Lifetime:
    """An object is open until `end`; from then on every use of it raises ClosedError. Thread safe.

    A part of another object (`within`) ends with it.
    """

    def __init__(self, within: Lifetime | None = None) -> None:
        self._within = within
        self._said: tuple[str, str | None] | None = None
        self._users: Counter[int] = Counter()
        self._changed = Condition()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._said is not None or (self._within is not None and self._within.ended)

    @property
    def in_use(self) -> bool:
        """Whether a use of it is under way."""
        with self._changed:
            return bool(self._users)

    def end(self, message: str, *, hint: str | None = None) -> bool:
        """Refuse every use that begins from now on; False when it had ended already."""
        with self._changed:
            if self._said is not None:
                return False
            self._said = (message, hint)
            return True

    def check(self) -> None:
        """Raise ClosedError after the end."""
        if self.ended:
            raise self.error()

    def error(self) -> ClosedError:
        """The ClosedError of a use after the end."""
        if self._within is not None and self._within.ended:
            return self._within.error()
        message, hint = self._said or ("it is closed", None)
        return ClosedError(message, hint=hint)

    @contextmanager
    def use(self) -> Iterator[None]:
        """A use that `drained` waits for. If it fails because of the end, it raises ClosedError instead."""
        thread = get_ident()
        with self._changed:
            self.check()
            self._users[thread] += 1
        try:
            with self._within.use() if self._within is not None else nullcontext():
                yield
        except Exception as exc:
            if self.ended and not isinstance(exc, ClosedError):
                raise self.error() from exc
            raise
        finally:
            with self._changed:
                self._users[thread] -= 1
                if not self._users[thread]:
                    del self._users[thread]
                self._changed.notify_all()

    def drained(self, seconds: float) -> bool:
        """Wait for the uses that began before the end, except those of this thread."""
        mine = get_ident()
        deadline = monotonic() + seconds
        with self._changed:
            return self._changed.wait_for(lambda: not self._users.keys() - {mine}, deadline - monotonic())


class Ended:
    """Takes the place of a part that has ended: every access raises ClosedError."""

    __slots__ = ("_lifetime",)

    def __init__(self, lifetime: Lifetime) -> None:
        object.__setattr__(self, "_lifetime", lifetime)

    def __getattr__(self, name: str) -> NoReturn:
        raise self._lifetime.error()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise self._lifetime.error()

    def __len__(self) -> int:
        raise self._lifetime.error()


class _Mortal(Protocol):
    lifetime: Lifetime


F = TypeVar("F", bound=Callable[..., Any])


def while_open(method: F) -> F:
    """Decorator of methods of an object with a `lifetime`: each call is a use."""

    @wraps(method)
    def within(self: _Mortal, *args: Any, **named: Any) -> Any:
        with self.lifetime.use():
            return method(self, *args, **named)

    return within  # type: ignore[return-value]


def waited(condition: Callable[[], T], timeout: float) -> T | None:
    """The first true value of the condition; its last value, a false one, when the timeout has passed.

    A condition that needs a table without columns, which waits for its first record, does not hold yet.
    """
    deadline = monotonic() + timeout
    while True:
        found = None
        with suppress(SourceEmptyError):
            found = condition()
        left = deadline - monotonic()
        if found or left <= 0:
            return found
        sleep(min(_GLANCE, left))
