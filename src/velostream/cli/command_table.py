"""The commands of `velo`, each imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import NoReturn

import click

from velostream import __version__
from velostream.cli.invocation import Invocation, common
from velostream.errors import did_you_mean

COMMANDS = {
    "demo": ("velostream.cli.commands.demo", "Watch tables move: a trading story with nothing to install."),
    "run": ("velostream.cli.commands.run", "Run a file of SQL statements and keep it running."),
    "check": ("velostream.cli.commands.check", "Check a file of SQL statements without starting anything."),
    "plan": ("velostream.cli.commands.plan", "Show what running a file would change, without changing it."),
    "sql": ("velostream.cli.commands.sql", "Run a statement, or type them one by one."),
    "tables": ("velostream.cli.commands.listings", "List the tables."),
    "jobs": ("velostream.cli.commands.listings", "List the jobs with their state and statistics."),
    "describe": ("velostream.cli.commands.listings", "Show the columns of a table, stream, source or view."),
    "explain": (
        "velostream.cli.commands.listings",
        "Show how a statement would be maintained, and with which state.",
    ),
    "logs": ("velostream.cli.commands.logs", "Show what happened in the data directory."),
    "test": (
        "velostream.cli.commands.test",
        "Run test cases: SQL, input rows, and expected results.",
    ),
    "broker": ("velostream.cli.commands.broker", "Run a Kafka broker for development, on this machine."),
    "topic": (
        "velostream.cli.commands.topic",
        "List, create, fill, show and delete topics of a Kafka cluster.",
    ),
    "connector": ("velostream.cli.commands.connector", "Make a package for a connector of your own."),
    "doctor": ("velostream.cli.commands.doctor", "Check Java, Spark, jars, ports, memory and disk."),
}
"""From name to module and help text; the module has a click command of that name."""

_OTHERS = {
    **dict.fromkeys(
        ("stop", "kill", "down"),
        'Ctrl-C ends velo run; velo sql "STOP JOB name" stops a job, and DROP TABLE name ends it for good',
    ),
    **dict.fromkeys(("start", "up", "apply"), "velo run app.sql"),
    **dict.fromkeys(
        ("shell", "repl", "query", "console", "exec", "select"), 'velo sql, or velo sql "SELECT …"'
    ),
    **dict.fromkeys(("status", "ps", "list", "ls"), "velo jobs, velo tables"),
    **dict.fromkeys(("validate", "lint"), "velo check app.sql"),
    **dict.fromkeys(("topics", "kafka"), "velo topic list"),
    **dict.fromkeys(("init", "new"), "a file is an application: velo run app.sql"),
    "drop": 'velo sql "DROP TABLE name"',
    "version": "velo --version",
}
"""Commands of other programs, and what is meant here."""

EPILOG = "Exit codes: 0 done, 1 a statement failed, 2 usage or configuration, 3 cannot connect, 4 timeout, 5 changes (plan), 130 interrupted, 143 terminated."  # noqa: E501


class LazyGroup(click.Group):
    """Imports a command's module when the command is called, so that `velo check` pays for nothing else."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which a new user needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(COMMANDS[cmd_name][0]), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; an unknown one is reported with the nearest."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            _unknown(args[0])
        return super().resolve_command(ctx, args)


def _unknown(name: str) -> NoReturn:
    from velostream.errors import ConfigError

    if name.endswith(".sql"):
        raise ConfigError(f'"{name}" is a file, and no command', hint=f"velo run {name}")
    raise ConfigError(
        f'no command "{name}"',
        hint=_OTHERS.get(name) or did_you_mean(name, COMMANDS) or f"there is: {', '.join(COMMANDS)}",
    )


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="velo", message="%(prog)s %(version)s")
@click.pass_context
@common
def velo(invocation: Invocation, context: click.Context) -> None:
    """Streaming SQL on Spark: tables that are maintained continuously and exactly."""
    context.obj = invocation
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
