"""`ringback dev`: wraps one MCP server for a first try, and prints its URLs."""

import logging
import re
import shlex
import shutil
import signal
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Final

import typer

from ringback import server
from ringback.cli.client_options import URL_DEFAULT
from ringback.cli.commands.serve import load_development_settings
from ringback.cli.output import exit_with_error, print_message, print_output
from ringback.cli.server_options import exit_on_service_errors
from ringback.client import ClientError, RingbackClient, Unavailable
from ringback.upstreams.config import parse_upstream_option
from ringback.upstreams.transports import child_process

NAME_LENGTH_MAX: Final = 24
"""The longest name of an upstream."""
NAME_DEFAULT: Final = "server"
KEPT_DATABASE_URL: Final = "sqlite:///ringback-dev.db"
TOOLS_SHOWN_MAX: Final = 20

_LAUNCHERS: Final = frozenset(
    {"bun", "bunx", "deno", "env", "node", "npx", "pipx", "pnpm", "py", "run", "uv", "uvx", "x"}
)
"""Commands, and subcommands of theirs, that start a server whose name follows."""
_LAUNCHER_PATTERN: Final = re.compile(r"python[0-9.]*|pypy[0-9.]*")
_ASSIGNMENT_PATTERN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")
_SCRIPT_SUFFIXES: Final = frozenset({".cjs", ".js", ".mjs", ".py", ".ts"})
_AFFIX_PATTERN: Final = re.compile(r"^(mcp-server-|server-|mcp-)(?=.)|(?<=.)(-mcp-server|-server|-mcp)$")
"""What the names of MCP servers have in common: `mcp-server-git` and `git-mcp` become `git`."""


@exit_on_service_errors()
def dev(
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="The command that starts the MCP server, after `--`; or its URL."),
    ],
    *,
    name: Annotated[
        str | None, typer.Option("--name", help="The upstream's name. Default: derived from the command.")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 chooses a free one.")
    ] = 8090,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep calls and webhooks in ./ringback-dev.db, not in a temporary file.")
    ] = False,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "warning",
) -> None:
    """Wrap one MCP server, print its URLs, and serve until interrupted. For this machine only.

    As `ringback serve --dev`: no API keys, and callbacks to loopback over http. Calls are kept in a temporary file. What the
    server writes to stderr is shown. If its tools cannot be listed, the command ends, with the reason.
    """
    text = command[0] if len(command) == 1 else shlex.join(command)
    upstream_name = name or derive_upstream_name(text.split())
    upstream = parse_upstream_option(f"{upstream_name}={text}")
    if upstream.command and shutil.which(upstream.command) is None:
        exit_with_error(f"'{upstream.command}' is no program that can be run. Check its name or path, and your PATH.")
    with ExitStack() as stack:
        database_url = KEPT_DATABASE_URL
        if not keep:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ringback-dev-"))
            database_url = f"sqlite:///{Path(folder) / 'ringback.db'}"
        settings = load_development_settings(
            {"database_url": database_url, "host": "127.0.0.1", "port": port, "log_level": log_level}
        )

        first_look = _FirstLook(upstream_name, has_dashboard=settings.ui)
        with _showing_stderr(are_logged=log_level == "debug"):
            server.serve(settings, [upstream], on_listening=first_look.announce)
        if first_look.problem is not None:
            exit_with_error(first_look.problem)


def derive_upstream_name(command: Sequence[str]) -> str:
    """A name for the server that the command starts: `npx -y @scope/server-git@1` and `python -m mcp_server_git` give `git`.

    Names are 1 to 24 of a-z, 0-9 and '-'.
    """
    position = next((index for index, part in enumerate(command) if not _is_launcher(part)), None)
    subject = "" if position is None else command[position]
    if position and command[position - 1] == "-m":
        subject = subject.removesuffix(".__main__").rsplit(".", 1)[-1]
    package = subject.rsplit("/", 1)[-1].partition("@")[0]
    path = PurePosixPath(package)
    if path.suffix in _SCRIPT_SUFFIXES:
        package = path.stem
    name = re.sub(r"[^a-z0-9]+", "-", package.lower()).strip("-")
    for _ in range(2):  # a prefix and a suffix
        name = _AFFIX_PATTERN.sub("", name)
    return name[:NAME_LENGTH_MAX].strip("-") or NAME_DEFAULT


def describe_endpoints(url: str, name: str, *, has_dashboard: bool) -> str:
    """What to do with the running service, one line each."""
    option = "" if url == URL_DEFAULT else f" --url {url}"
    return "\n".join(
        [
            f"MCP URL    {url}/mcp/{name}",
            f"REST URL   {url}/v1",
            *([f"Dashboard  {url}/ui"] if has_dashboard else []),
            f"Listen     ringback listen{option}",
            f"Call       ringback call {name} TOOL{option}",
            "Ctrl-C stops everything.",
        ]
    )


class _FirstLook:
    """Prints the URLs and the tools once these can be listed. The service itself would run on without the server."""

    def __init__(self, name: str, *, has_dashboard: bool) -> None:
        self._name = name
        self._has_dashboard = has_dashboard
        self.problem: str | None = None
        """Why the tools cannot be listed. The service then stops."""

    async def announce(self, url: str) -> None:
        async with RingbackClient(url) as client:
            try:
                tools = await self._list_tools(client)
            except ClientError as error:
                self.problem = f"The server's tools cannot be listed: {error}"
                signal.raise_signal(signal.SIGTERM)
                return
        print_output(describe_endpoints(url, self._name, has_dashboard=self._has_dashboard))
        shown = ", ".join(tools[:TOOLS_SHOWN_MAX])
        print_output(f"Tools      {shown}{', …' if len(tools) > TOOLS_SHOWN_MAX else ''}")

    async def _list_tools(self, client: RingbackClient) -> Sequence[str]:
        """The names of the tools. The service limits how long the server may take to start, and is waited for.

        A launcher such as uvx may download the server first, which takes longer than a request for the list may.
        """
        before = ""
        while True:
            try:
                return [tool.name for tool in await client.tools(self._name)]
            except Unavailable:
                state = await self._read_state(client)
                if state not in {"connecting", "ready"} or before == "ready":
                    raise
            if not before:
                print_message("The server takes long to start. Its launcher may download it first.")
            before = state

    async def _read_state(self, client: RingbackClient) -> str | None:
        """None once an attempt to connect has failed."""
        found = next((each for each in await client.upstreams() if each.name == self._name), None)
        return None if found is None or found.last_error is not None else found.state


@contextmanager
def _showing_stderr(*, are_logged: bool) -> Generator[None]:
    """Print what the server writes to stderr as it comes, unless the log has it. The service logs it at debug level."""

    def show(record: logging.LogRecord) -> bool:
        if record.msg != child_process.STDERR_EVENT or are_logged:
            return True
        for line in str(record.__dict__["text"]).splitlines():
            print_message(f"  | {line}")
        return False

    logger, level = child_process.log, child_process.log.level
    logger.addFilter(show)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeFilter(show)
        logger.setLevel(level)


def _is_launcher(part: str) -> bool:
    is_option = part.startswith("-") or _ASSIGNMENT_PATTERN.fullmatch(part) is not None
    program = part.rsplit("/", 1)[-1]
    return is_option or program in _LAUNCHERS or _LAUNCHER_PATTERN.fullmatch(program) is not None
