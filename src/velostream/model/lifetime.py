"""How long something may be used, and what its users are told afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from functools import wraps
from threading import Condition, get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from velostream.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Lifetime:
    """Something is open until `end`; from then on every use of it raises ClosedError. Thread safe.

    What is a part of something else (`within`) ends with it.
    """

    def __init__(self, within: Lifetime | None = None) -> None:
        self._within = within
        self._said: tuple[str, str | None] | None = None
        self._users: Counter[int] = Counter()
        self._changed = Condition()

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._said is not None or (self._within is not None and self._within.ended)

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
        """What a use after the end raises."""
        if self._within is not None and self._within.ended:
            return self._within.error()
        message, hint = self._said or ("it is closed", None)
        return ClosedError(message, hint=hint)

    @contextmanager
    def use(self) -> Iterator[None]:
        """Something that `drained` waits for. What fails because of the end says that, whatever it said."""
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
        """Wait for the uses that had begun before the end, but for those of this thread."""
        mine = get_ident()
        deadline = monotonic() + seconds
        with self._changed:
            return self._changed.wait_for(lambda: not self._users.keys() - {mine}, deadline - monotonic())


class Ended:
    """Stands where a part of something was that has ended: whoever reaches for it is told so."""

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
    """A method of something with a `lifetime`, which it is a use of."""

    @wraps(method)
    def within(self: _Mortal, *args: Any, **named: Any) -> Any:
        with self.lifetime.use():
            return method(self, *args, **named)

    return within  # type: ignore[return-value]
