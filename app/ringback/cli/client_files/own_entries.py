"""The entries that Ringback writes into a client's file: by URL, or as a command that connects to the service."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, cast
from urllib.parse import urlsplit

from ringback.cli.client_files.clients import Client, Format, Variables

URL_KEYS: Final = ("httpUrl", "serverUrl", "url")
"""The keys under which clients have the URL of a server."""
KEY_VARIABLE: Final = "RINGBACK_API_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How clients reach the service."""

    command: tuple[str, ...]
    """The program and its first arguments, as a client starts it: without a shell and without the user's PATH."""
    url: str | None = None
    """A service that the user keeps running; None: `ringback mcp` finds or starts one."""
    api_key: str | None = None


def make_own_entry(client: Client, upstream: str, way: Way, *, variables: Iterable[str] = ()) -> dict[str, Any]:
    """The entry that leads to the upstream, whose settings refer to these variables of the environment."""
    if way.url is not None and client.url_key is not None:
        return _make_url_entry(client, f"{way.url.rstrip('/')}/mcp/{upstream}", has_key=way.api_key is not None)
    program, *first = way.command
    url = [] if way.url is None else ["--url", way.url]
    entry: dict[str, Any] = {"command": program, "args": [*first, "mcp", "--upstream", upstream, *url]}
    if way.url is not None and way.api_key is not None:
        entry["env"] = {KEY_VARIABLE: way.api_key}  # a client that only starts commands replaces no reference
    if client.forwards_variables and (names := sorted(variables)):
        entry["env_vars"] = names
    return {"type": "stdio", **entry} if client.declares_type else entry


def _make_url_entry(client: Client, url: str, *, has_key: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "http"} if client.declares_type else {}
    entry[client.url_key or "url"] = url
    if has_key and client.format is Format.TOML:
        entry["bearer_token_env_var"] = KEY_VARIABLE
    elif has_key:
        prefix = "env:" if client.variables is Variables.ENV_PREFIX else ""
        entry["headers"] = {"Authorization": f"Bearer ${{{prefix}{KEY_VARIABLE}}}"}
    return entry


def find_service_url(entry: Mapping[str, Any]) -> str | None:
    """The service to which an entry of `make_own_entry` leads; None if `ringback mcp` finds it."""
    url = next((entry[key] for key in URL_KEYS if key in entry), None)
    if url is not None:
        return url.rpartition("/mcp/")[0]
    arguments = cast("list[str]", entry["args"])
    return arguments[arguments.index("--url") + 1] if "--url" in arguments else None


def find_own_upstream(settings: Any, *, url: str) -> str | None:
    """The upstream of an entry that is Ringback already; None if it is another server. `""`: all upstreams."""
    if not isinstance(settings, dict):
        return None
    entry = cast("dict[str, Any]", settings)
    if isinstance(entry.get("command"), str):
        return _find_in_command(entry)
    if KEY_VARIABLE in json.dumps([entry.get("headers"), entry.get("bearer_token_env_var")], default=str):
        return ""  # made for a service at another URL
    written = next((entry[key] for key in URL_KEYS if isinstance(entry.get(key), str)), "")
    return _find_in_url(written, url)


def _find_in_command(entry: Mapping[str, Any]) -> str | None:
    arguments = cast("list[Any]", entry["args"]) if isinstance(entry.get("args"), list) else []
    words = [entry["command"], *(each for each in arguments if isinstance(each, str))]
    names = [PurePath(word.replace("\\", "/")).name.removesuffix(".exe") for word in words]
    if "ringback" not in names or "mcp" not in words[names.index("ringback") :]:
        return None
    following = words[words.index("--upstream") + 1 :] if "--upstream" in words else []
    return following[0] if following else ""


def _find_in_url(written: str, service: str) -> str | None:
    try:
        parts, own = urlsplit(written), urlsplit(service)
        is_own = (_name_host(parts.hostname), parts.port) == (_name_host(own.hostname), own.port)
    except ValueError:
        return None
    path = parts.path.removeprefix(own.path.rstrip("/"))
    if not is_own or not (path == "/mcp" or path.startswith("/mcp/")):
        return None
    return path.removeprefix("/mcp").strip("/")


def _name_host(host: str | None) -> str | None:
    return "localhost" if host in {"127.0.0.1", "::1", "localhost"} else host
