"""What a connection changes: Ringback's configuration gets the servers, and the client's file gets Ringback in their place.

client's document ──▶ each server ──translate──▶ Ringback's configuration, under a name of its own
                                  ──own entry──▶ the client's document, under the client's name
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from ringback.cli.client_files.clients import Client, Format
from ringback.cli.client_files.configuration import Configuration
from ringback.cli.client_files.documents import Document, JsonDocument, Replacement, TomlDocument
from ringback.cli.client_files.entries import MOVED_KEYS, ServerKept, Surroundings, find_variables, translate_entry
from ringback.cli.client_files.own_entries import Way, find_own_upstream, make_own_entry
from ringback.cli.client_files.text_edits import UnreadableDocument
from ringback.cli.client_options import URL_DEFAULT
from ringback.upstreams.config.loader import UPSTREAMS_MAX
from ringback.upstreams.config.names import NAME_LENGTH_MAX, map_name

_NAME_DEFAULT: Final = "server"
"""For a name without a letter or digit that an upstream's name may have."""
_PROJECTS: Final = "projects"
_TOOL_FILTERS: Final = ("includeTools", "enabled_tools")
"""Of Gemini CLI and of Codex. A client with a list of tools leaves out those that Ringback adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedServer:
    """One server of the client's file."""

    path: tuple[str, ...]
    """Its place in the client's file; the last key is the client's name for it."""
    upstream: str | None = None
    """Ringback's name for it; None if it stays as it is."""
    reason: str = ""
    """Why it stays as it is."""
    is_ringback: bool = False
    """Whether it is Ringback already."""
    tool_filter: str | None = None
    """The member of the entry with which the client names the tools that it uses; None if it uses all."""
    settings: dict[str, Any] | None = None
    """The entry of Ringback's configuration. Its values may be secret."""

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def may_need_login(self) -> bool:
        """Whether the server may ask for a login: its requests have no `Authorization` header."""
        settings = self.settings or {}
        headers = cast("dict[str, str]", settings.get("headers", {}))
        return "url" in settings and not any(name.lower() == "authorization" for name in headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    servers: tuple[PlannedServer, ...]
    client_text: str
    config_text: str
    added: Mapping[str, Any]
    """The entries that the configuration did not have, by name."""

    @property
    def moved(self) -> tuple[PlannedServer, ...]:
        return tuple(server for server in self.servers if server.upstream is not None)

    @property
    def variables(self) -> list[str]:
        """The variables that the service's environment needs."""
        return self._list_variables(are_required=True)

    @property
    def optional_variables(self) -> list[str]:
        """The variables that have a default, such as those that a client passes on if they are set."""
        required = set(self.variables)
        return [name for name in self._list_variables(are_required=False) if name not in required]

    def _list_variables(self, *, are_required: bool) -> list[str]:
        found = (find_variables(server.settings).items() for server in self.moved)
        return sorted({name for each in found for name, is_required in each if is_required is are_required})


def parse_document(text: str, client: Client) -> Document:
    """The client's file. Raises `UnreadableDocument`."""
    if client.format is Format.TOML:
        return TomlDocument(text)
    return JsonDocument(text, allows_comments=client.format is Format.JSON_WITH_COMMENTS)


def plan_connection(
    document: Document, config: Configuration, *, client: Client, way: Way, surroundings: Surroundings
) -> Plan:
    """Raises `UnreadableDocument` if the client's file has an unknown shape."""
    taken = dict(config.servers)
    read = [_read_server(document, path, client, way, surroundings) for path in list_servers(document, client)]
    assigned = {server.path: _assign_name(server, taken) for server in sorted(read, key=_needs_mapping)}
    servers = tuple(assigned[server.path] for server in read)
    added = {each.upstream: each.settings for each in servers if each.upstream and each.upstream not in config.servers}
    return Plan(
        servers=servers,
        client_text=_replace_servers(document, servers, client, way),
        config_text=config.add_servers(added),
        added=added,
    )


def list_servers(document: Document, client: Client) -> list[tuple[str, ...]]:
    """The places of the servers in a client's file. Raises `UnreadableDocument` if a container is no object."""
    paths = list[tuple[str, ...]]()
    for container in document.find_containers(client.containers):
        servers = document.get(container)
        if not isinstance(servers, dict):
            raise UnreadableDocument(f"has something else than an object in '{'.'.join(container)}'")
        paths += [(*container, name) for name in cast("dict[str, Any]", servers)]
    return paths


def _read_server(
    document: Document, path: tuple[str, ...], client: Client, way: Way, surroundings: Surroundings
) -> PlannedServer:
    settings = document.get(path)
    if find_own_upstream(settings, url=way.url or URL_DEFAULT) is not None:
        return PlannedServer(path=path, reason="it is Ringback already", is_ringback=True)
    if path[0] == _PROJECTS:
        surroundings = Surroundings(home=surroundings.home, folder=Path(path[1]), inputs=surroundings.inputs)
    try:
        translated = translate_entry(settings, client=client, surroundings=surroundings)
    except ServerKept as kept:
        return PlannedServer(path=path, reason=str(kept))
    tool_filter = next((key for key in _TOOL_FILTERS if settings.get(key)), None)
    return PlannedServer(path=path, settings=translated, tool_filter=tool_filter)


def _needs_mapping(server: PlannedServer) -> bool:
    """Servers whose names need no mapping get their names first."""
    return map_name(server.name) != server.name


def _assign_name(server: PlannedServer, taken: dict[str, Any]) -> PlannedServer:
    """The server with an upstream's name. Equal servers share one upstream; others with an equal name are numbered."""
    if server.settings is None:
        return server
    base = map_name(server.name) or _NAME_DEFAULT
    names = (base, *(f"{base[: NAME_LENGTH_MAX - len(f'-{n}')]}-{n}" for n in range(2, UPSTREAMS_MAX + 2)))
    name = next(name for name in names if taken.get(name, server.settings) == server.settings)
    if name not in taken and len(taken) >= UPSTREAMS_MAX:
        return PlannedServer(path=server.path, reason=f"Ringback serves at most {UPSTREAMS_MAX} servers")
    taken[name] = server.settings
    return replace(server, upstream=name)


def _replace_servers(document: Document, servers: Sequence[PlannedServer], client: Client, way: Way) -> str:
    replacements = [
        Replacement(
            path=server.path,
            remove=MOVED_KEYS,
            add=make_own_entry(client, server.upstream, way, variables=find_variables(server.settings)),
        )
        for server in servers
        if server.upstream is not None
    ]
    return document.replace(replacements) if replacements else document.text
