"""`ringback connect`: puts the servers of an MCP client behind Ringback, and takes them back."""

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from ringback.cli.client_files.clients import CLIENTS, Client, FileScope, Places, find_client, get_places
from ringback.cli.client_files.configuration import Configuration
from ringback.cli.client_files.connection import undo_connection, write_connection
from ringback.cli.client_files.documents import Document
from ringback.cli.client_files.entries import Surroundings
from ringback.cli.client_files.own_entries import Way, find_service_url
from ringback.cli.client_files.plan import parse_document, plan_connection
from ringback.cli.client_files.records import ConnectionRecord, RecordFolder, hash_api_key
from ringback.cli.client_files.safe_files import (
    FILE_BYTES_MAX,
    HISTORY_BYTES_MAX,
    FileRefused,
    ReadFile,
    create_file,
    read_file,
)
from ringback.cli.client_files.service_units import describe_task, make_service_unit
from ringback.cli.client_files.text_edits import UnreadableDocument
from ringback.cli.client_options import run_with_client
from ringback.cli.connect_report import print_clients, print_next_steps, print_plan, print_undo, print_variables
from ringback.cli.embedded_service.paths import find_paths
from ringback.cli.embedded_service.runtime_file import read_running_service
from ringback.cli.output import exit_on_errors, exit_with_error, print_message, print_output
from ringback.client import ClientError
from ringback.client.arguments import check_base_url
from ringback.client.problems import InvalidArgument

_NAMES: Final = ", ".join(client.name for client in CLIENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connection:
    """What the options chose."""

    client: Client
    path: Path
    config_path: Path
    environment_path: Path
    """The variables of the user's own service."""
    way: Way
    surroundings: Surroundings
    records: RecordFolder


@exit_on_errors(FileRefused)
def connect(
    client: Annotated[
        str | None, typer.Argument(metavar="CLIENT", help=f"{_NAMES}. Default: list those found.")
    ] = None,
    *,
    write: Annotated[bool, typer.Option("--write", help="Write both files. Without it, nothing is written.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take the changes back.")] = False,
    scope: Annotated[
        FileScope, typer.Option("--scope", help="The file of the user, or that of the project in this folder.")
    ] = FileScope.USER,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="The client's file, if it is somewhere else.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Ringback's configuration. Default: ~/.config/ringback/mcp.json."
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", help="A service that you keep running. Default: `ringback mcp`, which starts one if none runs."
        ),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="RINGBACK_API_KEY", help="Your API key for the service of --url.")
    ] = None,
    service: Annotated[
        bool,
        typer.Option(
            "--service", help="Also start the service with your session: a unit of systemd, an agent of launchd."
        ),
    ] = False,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="ID=VARIABLE", help="A variable in the place of a prompt of VS Code. May be repeated."
        ),
    ] = None,
) -> None:
    """Put the servers of an MCP client behind Ringback. Without --write: show what would change."""
    places = get_places(sys.platform)
    if client is None:
        print_clients(places)
        return
    if (chosen := find_client(client)) is None:
        raise typer.BadParameter(f"there is {_NAMES}", param_hint="CLIENT")
    path = file if file is not None else _find_file(chosen, scope, places)
    config = config and config.absolute()
    paths = find_paths(places.environment)
    records = RecordFolder(paths.folder)
    if undo:
        if write:
            raise typer.BadParameter("give --write or --undo, not both")
        _undo(chosen, path, records, api_key)
        return
    if url is None and config is not None and config != paths.config:
        raise typer.BadParameter(
            f"`ringback mcp` starts a service with {paths.config}; name the service of this file with --url",
            param_hint="--config",
        )
    connection = _Connection(
        client=chosen,
        path=path,
        config_path=config or paths.config,
        environment_path=paths.environment,
        way=Way(command=find_program(), url=_parse_url(url), api_key=api_key or None),
        surroundings=Surroundings(
            home=places.home,
            folder=places.folder if scope is FileScope.PROJECT else None,
            inputs=_parse_inputs(inputs or []),
        ),
        records=records,
    )
    _connect(connection, write=write)
    if scope is FileScope.PROJECT:
        print_message("Others who use this project's file need Ringback with the same configuration, too.")
    if url is None:
        _keep_running(connection.way.command, places, write=write and service)


def find_program() -> tuple[str, ...]:
    """How a client starts this program, also one that does not have the user's PATH."""
    own = Path(sys.argv[0])
    if own.stem == "ringback" and own.is_file():
        return (str(own.absolute()),)
    found = shutil.which("ringback")
    return (found,) if found is not None else (sys.executable, "-m", "ringback")


def _parse_url(url: str | None) -> str | None:
    """The URL of the service: that of its MCP endpoint is often at hand."""
    if url is None:
        return None
    try:
        return check_base_url(url.rstrip("/").removesuffix("/mcp"))
    except InvalidArgument as error:
        raise typer.BadParameter(str(error), param_hint="--url") from None


def _find_file(client: Client, scope: FileScope, places: Places) -> Path:
    path = client.find_user_file(places) if scope is FileScope.USER else client.find_project_file(places)
    if path is None:
        exit_with_error(f"{client.title} has no file for a project. Leave --scope out for the file of the user.")
    return path


def _parse_inputs(pairs: list[str]) -> dict[str, str]:
    parsed = [pair.partition("=") for pair in pairs]
    if any(not name or not variable.isidentifier() for name, _, variable in parsed):
        raise typer.BadParameter("write it as ID=VARIABLE", param_hint="--input")
    return {name: variable for name, _, variable in parsed}


def _read_client_file(client: Client, path: Path) -> tuple[ReadFile, Document]:
    limit = HISTORY_BYTES_MAX if client.keeps_history else FILE_BYTES_MAX
    if (file := read_file(path, bytes_max=limit)) is None:
        exit_with_error(f"{path}: there is no such file. Name the client's file with --file.")
    try:
        return file, parse_document(file.text, client)
    except UnreadableDocument as error:
        raise FileRefused(f"{path} {error}. It was left alone.") from None


def _read_configuration(path: Path) -> tuple[ReadFile | None, Configuration]:
    file = read_file(path)
    try:
        return file, Configuration() if file is None else Configuration(file.text)
    except UnreadableDocument as error:
        raise FileRefused(f"{path} {error}. Nothing was written.") from None


def _connect(connection: _Connection, *, write: bool) -> None:
    client, path = connection.client, connection.path
    client_file, document = _read_client_file(client, path)
    config_file, config = _read_configuration(connection.config_path)
    try:
        plan = plan_connection(
            document, config, client=client, way=connection.way, surroundings=connection.surroundings
        )
    except UnreadableDocument as error:
        raise FileRefused(f"{path} {error}. It was left alone.") from None
    print_plan(plan, client, path, connection.way)
    if not plan.moved:
        print_output("Nothing to change.")
    elif not write:
        print_variables(plan, connection.way, connection.environment_path)
        print_output("Nothing was written. Repeat the command with --write to write both files.")
    else:
        write_connection(
            plan,
            client=client,
            client_file=client_file,
            document=document,
            config_path=connection.config_path,
            config_file=config_file,
            records=connection.records,
            api_key=connection.way.api_key,
        )
        print_next_steps(plan, client, path, connection.config_path)
        print_variables(plan, connection.way, connection.environment_path)
        _reload_service(connection.way.url, connection.way.api_key)


def _keep_running(command: tuple[str, ...], places: Places, *, write: bool) -> None:
    """Say how the service keeps running, or write the unit that starts it."""
    unit = make_service_unit(command, places)
    if not write or unit is None:
        print_output(
            "`ringback mcp` starts the service when a client needs it. "
            + ("To start it with your session, add --service." if unit is not None else describe_task(command, places))
        )
        return
    existing = read_file(unit.path)
    if existing is not None and existing.content != unit.content:
        raise FileRefused(f"{unit.path}: exists with another content. Remove it to have it written anew.")
    if existing is None:
        create_file(unit.path, unit.content)
    print_output(f"Written: {unit.path}. Start the service: {unit.start}")


def _undo(client: Client, path: Path, records: RecordFolder, api_key: str | None) -> None:
    stored = records.list_of_file(client.name, Path(os.path.realpath(path)))
    if not stored:
        exit_with_error(
            f"{path}: Ringback has no record of a change of this file. If it has changed another one, name it as then: --file "
            "FILE, or --scope project in the project's folder."
        )
    services = _list_services([records.read(each) for each in stored])
    try:
        reports = [undo_connection(each, client=client, records=records) for each in stored]
    except UnreadableDocument as error:
        raise FileRefused(f"{path} {error}. It was left alone.") from None
    print_undo(path, reports)
    for url, keys_sha256 in services.items():
        _reload_service(url, api_key if api_key and hash_api_key(api_key) in keys_sha256 else None)


def _list_services(changes: Iterable[ConnectionRecord]) -> Mapping[str | None, Collection[str]]:
    """The URL of each service, and the hashes of the keys that were for it: the key at hand may be that of another service."""
    services: dict[str | None, set[str]] = {}
    for each in changes:
        for server in each.servers:
            services.setdefault(find_service_url(server.after), set()).add(each.api_key_sha256)
    return services


def _reload_service(url: str | None, api_key: str | None) -> None:
    """Let the service at this URL, or the user's own one if it runs, read its configuration again."""
    if url is not None:
        _reload(url, api_key)
    elif (running := read_running_service(find_paths(os.environ))) is not None:
        _reload(running.url, running.api_key)


def _reload(url: str, api_key: str | None) -> None:
    try:
        reloaded = run_with_client(url, api_key, lambda client: client.reload_upstreams())
    except (
        ClientError,
        InvalidArgument,
        typer.BadParameter,
    ) as error:  # the latter of a proxy variable that names no proxy
        print_message(
            f"The service at {url} did not read its configuration again: {error} Its operator does it with "
            "`ringback upstreams reload`, SIGHUP or a restart."
        )
        return
    for skipped in reloaded.skipped:
        print_message(f"The service at {url} skips {skipped.name} ({skipped.reason}): {skipped.advice}")
