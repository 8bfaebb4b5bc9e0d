"""What `ringback connect` prints: the clients, the plan, what to do next. It prints no value of an entry: it may be secret."""

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ringback.cli.client_files.clients import CLIENTS, Client, Places
from ringback.cli.client_files.connection import UndoReport
from ringback.cli.client_files.own_entries import KEY_VARIABLE, Way
from ringback.cli.client_files.plan import Plan, list_servers, parse_document
from ringback.cli.client_files.safe_files import HISTORY_BYTES_MAX, FileRefused, read_file
from ringback.cli.client_files.text_edits import UnreadableDocument
from ringback.cli.embedded_service.environment_file import read_environment_file
from ringback.cli.output import print_message, print_output
from ringback.upstreams.config import ConfigError

_EVERYWHERE: Final = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER"})
"""Variables that every process of the user has."""


def print_clients(places: Places) -> None:
    """The clients of which a file was found, and how many servers it has."""
    found = {  # in the home folder, the file of the project may be that of the user
        (client.name, path.resolve()): (client, path)
        for client in CLIENTS
        for path in (client.find_user_file(places), client.find_project_file(places))
        if path is not None and path.is_file()
    }
    for client, path in found.values():
        print_output(f"{client.name:<15} {_describe_file(client, path)}")
    if found:
        print_message("Show what would change: ringback connect CLIENT. A project's file: --scope project.")
    else:
        names = ", ".join(client.name for client in CLIENTS)
        print_message(f"No file of a client was found. Name one: ringback connect CLIENT --file FILE ({names}).")


def _describe_file(client: Client, path: Path) -> str:
    try:
        file = read_file(path, bytes_max=HISTORY_BYTES_MAX)
        count = 0 if file is None else len(list_servers(parse_document(file.text, client), client))
    except FileRefused as refused:
        return str(refused)
    except UnreadableDocument as error:
        return f"{path} {error}."
    return f"{path}: {count} {'server' if count == 1 else 'servers'}"


def print_plan(plan: Plan, client: Client, path: Path, way: Way) -> None:
    print_output(f"{client.title}: {path}")
    for server in plan.servers:
        if server.upstream is None:
            print_output(f"  {server.name}: stays. {server.reason[:1].upper()}{server.reason[1:]}.")
        elif way.url is not None and client.url_key is not None:
            print_output(f"  {server.name}: through {way.url.rstrip('/')}/mcp/{server.upstream}")
        else:
            print_output(f"  {server.name}: through `ringback mcp --upstream {server.upstream}`")
        if way.url is None and server.upstream is not None and _lacks_command(server.settings or {}):
            print_output(
                "    Its command is not found on this machine. Install it, or write its whole path: until then, the service "
                "cannot start it."
            )
        if server.tool_filter is not None:
            print_output(
                f"    Its '{server.tool_filter}' leaves out Ringback's tools. Add ringback_get_call, ringback_wait_for_call "
                "and ringback_cancel_call to it, so that slow tools can be waited for."
            )


def _lacks_command(settings: Mapping[str, Any]) -> bool:
    """Whether the entry starts a command of which no program is found. Not known of one that has variables."""
    words = [settings.get("command"), settings.get("cwd"), settings.get("env", {}).get("PATH")]
    command, folder, path = (word if isinstance(word, str) else None for word in words)
    if command is None or any("${" in (word or "") for word in (command, folder, path)):
        return False
    name = str(Path(folder or "", command)) if os.sep in command else command
    return shutil.which(name, path=path) is None


def print_next_steps(plan: Plan, client: Client, path: Path, config_path: Path) -> None:
    print_output(f"Written: {config_path} and {path}. Take it back with --undo.")
    for server in plan.moved:
        if server.may_need_login:
            print_output(f"If {server.name} asks for a login: ringback upstreams login {server.upstream}")
    print_output(client.restart)
    print_output("To get a notification when a slow tool is done: ringback listen --notify")


def print_variables(plan: Plan, way: Way, environment_path: Path) -> None:
    """Where the variables go that the moved servers refer to. A service has not the environment of each client."""
    if way.url is not None and way.api_key is not None:
        print_output(f"The client needs your API key in its environment: {KEY_VARIABLE}.")
    given = {*_EVERYWHERE, *(_read_names(environment_path) if way.url is None else ())}
    required = [name for name in plan.variables if name not in given]
    optional = [name for name in plan.optional_variables if name not in given]
    if required:
        print_output(f"The service needs these variables: {', '.join(required)}.")
    if optional:
        print_output(f"The service passes these variables on if they are set: {', '.join(optional)}.")
    if not required and not optional:
        return
    if way.url is None:
        print_output(
            f"Add each as a line NAME=VALUE to {environment_path} (chmod 600). The service reads the file within seconds."
        )
    else:
        print_output(f"Set them in the environment of the service at {way.url}, and restart it.")


def _read_names(path: Path) -> Collection[str]:
    """None for a file that cannot be read: the service says why."""
    try:
        return read_environment_file(path).variables.keys()
    except ConfigError:
        return ()


def print_undo(path: Path, reports: Sequence[UndoReport]) -> None:
    for line in (line for report in reports for line in report.left):
        print_message(line)
    if all(report.is_exact for report in reports):
        print_output(f"{path} has the bytes that it had before.")
    else:
        print_output(f"{path} was edited meanwhile: only the entries that Ringback wrote were taken back.")
