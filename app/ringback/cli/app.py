"""The root command. It imports a command's module only when that command runs."""

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any, Final, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup

from ringback import __version__
from ringback.cli.imports import import_command_module


class _Entry(NamedTuple):
    place: str
    """The module below `ringback.cli`, and the name of the command in it."""
    help: str
    needs_server: bool = False
    runs_command: bool = False
    """Whether everything after the first argument belongs to another command."""
    is_hidden: bool = False
    """Whether the help leaves it out: other commands start it."""
    refuses_rest: bool = False
    """Whether the command itself refuses surplus arguments, because it knows what they were meant to be."""

    @property
    def module(self) -> str:
        return f"ringback.cli.{self.place.partition(':')[0]}"

    @property
    def name(self) -> str:
        return self.place.partition(":")[2]


_of_server: Final = partial(_Entry, needs_server=True)

COMMANDS: Final[Mapping[str, _Entry]] = {
    "serve": _of_server("commands.serve:serve", "Run the service. Every setting is a RINGBACK_* variable."),
    "dev": _of_server(
        "commands.dev:dev", "Wrap one MCP server, print its URLs, and serve until interrupted.", runs_command=True
    ),
    "mcp": _of_server("commands.mcp:mcp", "Serve MCP on standard input and output, for clients that start a command."),
    "connect": _of_server("commands.connect:connect", "Put the servers of an MCP client behind Ringback."),
    "mcp-service": _of_server(
        "embedded_service.service_process:mcp_service", "Run the service of this user until it is idle.", is_hidden=True
    ),
    "keys": _of_server("commands.keys:app", "Manage API keys and the service's own keys."),
    "upstreams": _Entry(
        "commands.upstreams:app",
        "List, pause, drain, resume, restart and reload the MCP servers behind the service, and sign in.",
    ),
    "tools": _Entry("commands.upstreams:tools", "List the tools of an upstream."),
    "call": _Entry("commands.call:call", "Start a call of a tool.", refuses_rest=True),
    "join": _Entry("commands.join:join", "Wait for a call that was started earlier."),
    "wait": _Entry("commands.wait:wait", "Wait until calls have ended."),
    "calls": _Entry("commands.calls:app", "List, show, cancel, answer and erase calls."),
    "top": _Entry(
        "commands.top:top", "Show what is open now and how the last calls and callbacks went, until interrupted."
    ),
    "usage": _Entry("commands.usage:usage", "Show your quotas, and how much of each is used."),
    "sessions": _Entry("commands.erasures:sessions", "Erase the calls of a client session."),
    "principals": _Entry("commands.erasures:principals", "Erase all data of a principal."),
    "portal-link": _Entry("commands.portal_links:app", "Manage links to pages of the dashboard that need no key."),
    "audit": _Entry("commands.audit:audit", "Show who changed what you own, newest first."),
    "erasure": _Entry("commands.erasures:erasure", "Show how far an erasure is."),
    "events": _Entry("commands.events:app", "Print events, oldest first, and publish your own."),
    "listen": _Entry(
        "commands.listen:listen",
        "Receive callbacks, and print them, forward them or run a command for each, until interrupted.",
    ),
    "webhooks": _Entry("commands.webhooks:app", "Manage webhooks."),
    "deliveries": _Entry("commands.deliveries:app", "List and repeat deliveries."),
    "trigger": _Entry("commands.trigger:trigger", "Send a signed test event to a webhook."),
    "verify": _Entry("commands.verify:verify", "Verify the signature of a callback that was saved to a file."),
    "check-receiver": _Entry(
        "commands.check_receiver:check_receiver",
        "Send a receiver good, bad and hostile callbacks, and judge its answers.",
    ),
    "check-server": _Entry(
        "commands.check_server:check_server", "Check an MCP server that offers Events against the specification."
    ),
    "migrate": _of_server(
        "commands.migrate:migrate", "Bring the database to this version's schema, or check whether it is."
    ),
    "copy": _of_server("commands.copy:copy", "Copy an installation from SQLite to PostgreSQL, and compare every row."),
    "backup": _of_server(
        "commands.backup:backup", "Back up the database and its key file. The service may run meanwhile."
    ),
    "restore": _of_server("commands.backup:restore_backup", "Restore a backup."),
    "help": _Entry("commands.help:show_help", "Print a page for operators, or one section of it."),
    "doctor": _of_server(
        "commands.doctor:doctor", "Check the settings, the database, the keys, the upstreams and the service."
    ),
}
"""The commands in the order of the help, with the place that defines each. The help texts are repeated here, because importing
all modules takes 2.7 s of CPU."""

SERVER_HINT: Final = """Error: `ringback {command}` needs the service, which is not installed here. Install it:
    pip install "ringback[server]\""""

UNIX_MODULES: Final = frozenset({"fcntl", "resource"})
"""Modules of the standard library that Windows does not have."""
SYSTEM_HINT: Final = """Error: `ringback {command}` does not run on Windows. It runs on Linux, on macOS, and on Windows in WSL.
Commands that only send requests run here: `ringback call`, `join`, `events --follow` and the like, with --url."""


class LazyCommandGroup(TyperGroup):
    """Imports a command's module when the command runs, so that client commands do not import the service."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name, help=entry.help, hidden=entry.is_hidden) for name, entry in COMMANDS.items()
        }

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:  # noqa: ARG002 - typer's signature
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Import the command that the arguments name. Typer calls this just before it runs the command."""
        if args and args[0] == "resume":  # the verb of REST and MCP; its letters resemble those of other commands
            ctx.fail("No such command 'resume'. Did you mean 'join'? It takes a call's id or a resume token.")
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or (ctx.resilient_parsing and not _is_installed(COMMANDS[name])):
            return name, command, rest
        return name, _import_command(name, COMMANDS[name]), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Typer checks choices with pydantic, whose messages begin with the kind of the error."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


def _is_installed(entry: _Entry) -> bool:
    """Whether the command can be imported: completion must not print why it cannot."""
    return not entry.needs_server or find_spec("mcp") is not None


def _import_command(name: str, entry: _Entry) -> TyperCommand | TyperGroup:
    try:
        command = getattr(import_command_module(entry.module, keeps_plugins=entry.needs_server), entry.name)
    except ModuleNotFoundError as missing:
        if missing.name in UNIX_MODULES:
            typer.echo(SYSTEM_HINT.format(command=name), err=True)
            raise typer.Exit(2) from None
        if not entry.needs_server or (missing.name or "").partition(".")[0] == "ringback":
            raise
        typer.echo(SERVER_HINT.format(command=name), err=True)
        raise typer.Exit(2) from None
    return _make_command(name, entry, command)


def _make_command(name: str, entry: _Entry, command: Any) -> TyperCommand | TyperGroup:
    if isinstance(command, typer.Typer):
        group = typer.main.get_group(command)
        group.name = name
        return group
    single = typer.Typer(add_completion=False)
    settings = {"allow_interspersed_args": not entry.runs_command, "allow_extra_args": entry.refuses_rest}
    single.command(name, context_settings=settings)(command)
    return cast("TyperCommand", typer.main.get_command(single))


# Typer's own traceback prints the values of variables, which may be secrets; Python's does not.
app = typer.Typer(name="ringback", cls=LazyCommandGroup, no_args_is_help=True, pretty_exceptions_enable=False)


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
    """The callback service for MCP: start a tool call, disconnect, and get its result by callback."""
