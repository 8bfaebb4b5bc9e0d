"""Loads configurations from an `mcpServers` file or from an option `--upstream NAME=COMMAND_OR_URL`."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from ringback.domain import jsontext
from ringback.domain.upstreams import SkippedUpstream
from ringback.protocol.upstream_logins import UPSTREAM_NAME_PATTERN
from ringback.upstreams.config.models import ConfigError, LoadedUpstreams, UpstreamConfig, UpstreamEntry
from ringback.upstreams.config.names import NAME_RULE, assign_names, clean_name, map_name, skip_entry
from ringback.upstreams.config.regular_files import open_regular_file
from ringback.upstreams.config.server_entry import EntryRefused, parse_server_entry

CONFIG_BYTES_MAX: Final = 1024 * 1024
"""An mcpServers file has a few kilobytes; a larger file is something else."""
UPSTREAMS_MAX: Final = 200
"""Each upstream has its own connection, and most have a child process."""
_SERVER_KEYS: Final = ("mcpServers", "servers")  # Claude and most hosts; VS Code


_STRING: Final = r'"(?:[^"\\]|\\.|\\\Z)*+(?:"|\Z)'
"""Also one that is not closed: it ends with the text, so that the time is linear however many quotes follow."""
_COMMENT: Final = re.compile(rf"{_STRING}|//[^\n\r]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rf"{_STRING}|,(?=[ \t\n\r]*[}}\]])", re.DOTALL)
_BYTE_ORDER_MARK: Final = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""Some editors of Windows begin a file with it."""


def strip_json_comments(text: str) -> str:
    """The text as JSON: comments and trailing commas become spaces, so that every other character keeps its line and column."""
    without_comments = _COMMENT.sub(_blank, text.removeprefix(_BYTE_ORDER_MARK))
    return _TRAILING_COMMA.sub(_blank, without_comments)


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return found if found.startswith('"') else re.sub(r"[^\n\r]", " ", found)


def load_upstreams(path: Path, environment: Mapping[str, str] | None) -> LoadedUpstreams:
    """Read an mcpServers file; raises `ConfigError`, also for a file that cannot be read.

    Without an environment, placeholders are not expanded: that is enough for the names.
    """
    return parse_upstreams(_read_file(path), source=str(path), environment=environment)


def _read_file(path: Path) -> bytes:
    try:
        with open_regular_file(path) as file:
            return file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}). Name a file with an 'mcpServers' object."
        ) from None


def load_service_section(path: Path) -> Mapping[str, Any]:
    """The object `ringback` beside `mcpServers`: settings of the service itself. Empty if the file has none."""
    document = _parse_document(_read_file(path), str(path))
    section = document.get("ringback", {})
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: 'ringback' must be an object.")
    return cast("dict[str, Any]", section)


def parse_upstreams(text: bytes | str, *, source: str, environment: Mapping[str, str] | None) -> LoadedUpstreams:
    """The entries of an `mcpServers` (or VS Code `servers`) document in its order, without disabled ones.

    An entry that cannot be served is skipped, and the others are served. Raises `ConfigError` for a document without servers.
    """
    servers = {name: entry for name, entry in _parse_servers(text, source).items() if not _is_disabled(entry)}
    names = assign_names(servers)
    return LoadedUpstreams(
        source=source,
        entries=tuple(_parse_entry(names[each], each, servers[each], source, environment) for each in servers),
    )


def _is_disabled(entry: Any) -> bool:
    match entry:
        case {"disabled": True} | {"enabled": False}:
            return True
        case _:
            return False


def _parse_entry(
    name: str | SkippedUpstream, configured: str, entry: Any, source: str, environment: Mapping[str, str] | None
) -> UpstreamEntry:
    if isinstance(name, SkippedUpstream):
        return name
    where = _describe(source, configured)
    try:
        return parse_server_entry(
            name,
            _check_entry(where, entry),
            where=where,
            environment=environment,
            configured_name="" if name == configured else clean_name(configured),
        )
    except EntryRefused as refused:
        return skip_entry(configured, refused.advice, refused.reason)


def parse_upstream_option(option: str) -> UpstreamConfig:
    """Parse `NAME=COMMAND_OR_URL` of `serve --upstream`; a command is split as a shell splits it."""
    name, separator, value = option.partition("=")
    source = f"--upstream {name}"
    where = _describe(source, name)
    if not separator or not value.strip():
        raise ConfigError(f"{source}: write NAME=COMMAND_OR_URL, for example git='uvx mcp-server-git'.")
    if value.startswith(("http://", "https://")):
        settings: dict[str, Any] = {"url": value, "type": "http"}
    else:
        try:
            command, *args = shlex.split(value)
        except ValueError as error:
            raise ConfigError(f"{source}: the command cannot be split ({error}). Check its quotes.") from None
        settings = {"command": command, "args": args}
    if not UPSTREAM_NAME_PATTERN.fullmatch(name):
        better = map_name(name) or "upstream-1"
        raise ConfigError(f"{where}: {NAME_RULE}; rename it, for example to '{better}'.")
    return parse_server_entry(name, settings, where=where, environment=None)


def _describe(source: str, name: str) -> str:
    return f"{source}: upstream '{clean_name(name)}'"


def _check_entry(where: str, entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise EntryRefused(where, "must be an object with a 'command' or a 'url'.")
    return cast("dict[str, Any]", entry)


def _parse_document(text: bytes | str, source: str) -> dict[str, Any]:
    if len(text) > CONFIG_BYTES_MAX:
        raise ConfigError(f"{source}: larger than {CONFIG_BYTES_MAX} bytes, so it is not an mcpServers file.")
    try:
        json_text = strip_json_comments(text if isinstance(text, str) else text.decode())
        jsontext.loads(json_text)  # stricter, and its errors name the place
        document = jsontext.loads_unique(json_text.encode())
    except jsontext.RepeatedName as name:
        raise ConfigError(
            f"{source}: has two members named '{clean_name(str(name))}' in one object, and only one can count. "
            "Remove or rename one of them."
        ) from None
    except RecursionError:
        raise ConfigError(f"{source}: has too many levels of objects and lists.") from None
    except ValueError as error:
        raise ConfigError(f"{source}: not valid JSON ({error}). Comments and trailing commas are allowed.") from None
    return cast("dict[str, Any]", document) if isinstance(document, dict) else {}


def _parse_servers(text: bytes | str, source: str) -> dict[str, Any]:
    settings = _parse_document(text, source)
    keys = [key for key in _SERVER_KEYS if key in settings]
    if len(keys) != 1:
        raise ConfigError(f"{source}: needs an object with one key 'mcpServers' (or VS Code's 'servers').")
    servers = settings[keys[0]]
    if not isinstance(servers, dict):
        raise ConfigError(f"{source}: '{keys[0]}' must be an object that maps names to servers.")
    named = cast("dict[str, Any]", servers)
    if len(named) > UPSTREAMS_MAX:
        raise ConfigError(f"{source}: '{keys[0]}' names {len(named)} servers; at most {UPSTREAMS_MAX} are served.")
    return named
