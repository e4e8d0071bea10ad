"""The common options of every command, and the settings that result."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from velostream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from velostream.config import Settings

FORMATS = ("table", "json", "csv", "arrow")


@dataclass(frozen=True)
class Invocation:
    """The common options; None where they were not given."""

    data_dir: str | None = None
    master: str | None = None
    config: str | None = None
    conf: tuple[str, ...] = ()
    metrics_port: int | None = None
    format: str | None = None
    debug: bool = False

    def over(self, other: Invocation) -> Invocation:
        """These options, completed by those of `other`."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name)}
        if self.metrics_port is not None:
            given["metrics_port"] = self.metrics_port
        return replace(other, **given)

    @property
    def output_format(self) -> str:
        """The output format of rows."""
        return self.format or "table"

    def settings(self, **more: Any) -> Settings:
        """The effective settings; ConfigError says which flag, variable or line is wrong."""
        from velostream.config import load

        flags: dict[str, Any] = {
            "data_dir": self.data_dir,
            "master": self.master,
            "metrics_port": self.metrics_port,
            "conf": pairs(self.conf, "--conf", "spark.ui.enabled=true") or None,
        }
        return load(self.config, **(flags | more))


def pairs(given: tuple[str, ...], option: str, example: str) -> dict[str, str]:
    """The values of an option that is given as key=value, any number of times."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f'{option} "{text}" is not key=value', hint=f"write {option} {example}")
        found[key.strip()] = value
    return found


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--debug", is_flag=True, help="Show where an error came from."),
    click.option("--metrics-port", type=int, metavar="PORT", help="Serve Prometheus metrics on loopback."),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's own."),
    click.option("--config", metavar="FILE", help="The configuration file. [velostream.toml]"),
    click.option("--master", metavar="URL", help="Spark master. [all cores of this machine]"),
    click.option("--data-dir", metavar="DIR", help="Where tables, jobs and logs live. [.velostream]"),
)


def common_with(formats: Sequence[str], told: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `common`, for a command with formats of its own."""
    form = click.option("--format", type=click.Choice(formats), help=told)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(*arguments: Any, **given: Any) -> Any:
            own = Invocation(**{f.name: given.pop(f.name) for f in fields(Invocation)})
            context = click.get_current_context()
            outer = context.find_object(Invocation)
            invocation = own.over(outer) if outer is not None else own
            return function(invocation, *arguments, **given)

        decorated: Any = command
        for option in (_OPTIONS[0], form, *_OPTIONS[1:]):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


common = common_with(FORMATS, "How rows are written to stdout. [table]")
"""Give a command the common options; it gets them as one `Invocation`.

They may also precede the command's name; those after it win.
"""
