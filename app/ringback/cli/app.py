"""The root of the command line."""

import importlib
from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

import click
import typer
from typer.core import TyperGroup

from ringback import __version__


class _Place(NamedTuple):
    module: str
    name: str


COMMANDS: Final[Mapping[str, _Place]] = {
    "serve": _Place("ringback.cli.serve", "serve"),
    "mcp": _Place("ringback.cli.mcp", "mcp"),
    "keys": _Place("ringback.cli.keys", "app"),
    "call": _Place("ringback.cli.call", "call"),
    "listen": _Place("ringback.cli.listen", "listen"),
    "webhooks": _Place("ringback.cli.webhooks", "app"),
    "deliveries": _Place("ringback.cli.deliveries", "app"),
    "doctor": _Place("ringback.cli.doctor", "doctor"),
}
"""The commands in the order of the help, and the module that has each."""


class Commands(TyperGroup):
    """Imports a command when it is wanted: the service takes 3 s of CPU to import, and a client does not need it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        place = COMMANDS.get(cmd_name)
        return None if place is None else _command(cmd_name, place)


def _command(name: str, place: _Place) -> click.Command:
    found = getattr(importlib.import_module(place.module), place.name)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(name)(found)
        found = single
    command = typer.main.get_command(found)
    command.name = name
    return command


# A traceback is for whoever repairs a bug: it is printed as Python prints it, and never with the values of variables.
app = typer.Typer(
    name="ringback", cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ringback {__version__}")
        raise typer.Exit


@app.callback()
def ringback(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The callback service for MCP: call a tool, hang up, get rung back."""
