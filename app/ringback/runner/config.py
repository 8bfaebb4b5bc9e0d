"""Which MCP servers there are: the `mcpServers` file that every MCP host reads, and `serve --upstream NAME=COMMAND_OR_URL`.

Nothing is started or reached here. The environment is handed in; what it holds may be secret, so an error names the variable
and the upstream, never a value, and a configuration does not show its secrets when it is printed.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from ringback.domain import jsontext

CONFIG_BYTES_MAX: Final = 1024 * 1024
"""An mcpServers file is a few kilobytes; what is larger is some other file."""
UPSTREAMS_MAX: Final = 200
"""Each is a connection of its own, most of them a child process."""
MAX_CONCURRENT_STDIO: Final = 16
"""One process and one pipe: more calls at once only wait inside it."""
MAX_CONCURRENT_HTTP: Final = 256
"""Each waiting call is a connection; 256 of them stay below a usual limit of 1024 open files."""
MAX_CONCURRENT_MAX: Final = 10_000
"""As many waiting calls as one process is built for."""

_SETTINGS: Final = ("max_concurrent", "trust_annotations", "isolation")
_KEYS: Final = ("mcpServers", "servers")  # Claude and most hosts; VS Code
_NAME: Final = re.compile(r"[a-z0-9-]{1,24}")
_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_VARIABLE: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2, a token
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")


class Transport(StrEnum):
    STDIO = "stdio"
    HTTP = "http"


_TRANSPORTS: Final = {
    "stdio": Transport.STDIO,
    "http": Transport.HTTP,
    "streamable-http": Transport.HTTP,
    "streamableHttp": Transport.HTTP,
}


class Isolation(StrEnum):
    """Whether calls share a session with the upstream, or each has one (with stdio: a process) of its own."""

    SHARED = "shared"
    CALL = "call"


class ConfigError(ValueError):
    """The configuration of the upstreams does not hold together; the message says where and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig:
    """One upstream. `command`, `args`, `env` and `cwd` belong to stdio, `url` and `headers` to HTTP."""

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Added to the few variables that the SDK deems safe to inherit; nothing else of our environment is passed on."""
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    max_concurrent: int
    trust_annotations: bool = False
    """Whether readOnlyHint and idempotentHint of its tools may decide that a call is run a second time."""
    isolation: Isolation = Isolation.SHARED
    """Before 2026-07-28 only a session of a call's own lets its tool ask questions."""


def load_upstreams(path: Path, environment: Mapping[str, str]) -> tuple[UpstreamConfig, ...]:
    """Read an mcpServers file; raises `ConfigError` also when it cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}). Name a file with an 'mcpServers' object."
        ) from None
    return parse_upstreams(text, source=str(path), environment=environment)


def parse_upstreams(text: bytes | str, *, source: str, environment: Mapping[str, str]) -> tuple[UpstreamConfig, ...]:
    """The upstreams in an `mcpServers` (or VS Code `servers`) document, in its order, without those marked disabled."""
    servers = _servers(text, source)
    entries = (
        _Entry(source=source, name=name, settings=settings, environment=environment) for name, settings in servers
    )
    return tuple(entry.parse() for entry in entries if not entry.disabled)


def parse_upstream_option(option: str) -> UpstreamConfig:
    """`NAME=COMMAND_OR_URL` of `serve --upstream`; a command is split as a shell would."""
    name, separator, value = option.partition("=")
    source = f"--upstream {name}"
    if not separator or not value.strip():
        raise ConfigError(f"{source}: write NAME=COMMAND_OR_URL, for example git='uvx mcp-server-git'.")
    if value.startswith(("http://", "https://")):
        settings: dict[str, Any] = {"url": value}
    else:
        try:
            command, *args = shlex.split(value)
        except ValueError as error:
            raise ConfigError(f"{source}: the command cannot be split ({error}). Check its quotes.") from None
        settings = {"command": command, "args": args}
    return _Entry(source=source, name=name, settings=settings, environment=None).parse()


def _servers(text: bytes | str, source: str) -> list[tuple[str, Any]]:
    if len(text) > CONFIG_BYTES_MAX:
        raise ConfigError(f"{source}: larger than {CONFIG_BYTES_MAX} bytes, so it is not an mcpServers file.")
    try:
        document = jsontext.loads(text)
    except ValueError as error:
        raise ConfigError(f"{source}: not valid JSON ({error}). Comments and trailing commas are not JSON.") from None
    settings = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    keys = [key for key in _KEYS if key in settings]
    if len(keys) != 1:
        raise ConfigError(f"{source}: needs an object with one key 'mcpServers' (or VS Code's 'servers').")
    servers = settings[keys[0]]
    if not isinstance(servers, dict):
        raise ConfigError(f"{source}: '{keys[0]}' must be an object that maps names to servers.")
    named = cast("dict[str, Any]", servers)
    if len(named) > UPSTREAMS_MAX:
        raise ConfigError(f"{source}: '{keys[0]}' names {len(named)} servers; at most {UPSTREAMS_MAX} are served.")
    return list(named.items())


class _Entry:
    """One server of the file, while it is read. Without an environment nothing is expanded: the shell has done so."""

    def __init__(self, *, source: str, name: str, settings: Any, environment: Mapping[str, str] | None) -> None:
        self._where = f"{source}: upstream '{name[:64]}'"
        self._name = name
        self._environment = environment
        if not isinstance(settings, dict):
            raise self._error("must be an object with a 'command' or a 'url'")
        self._settings = cast("dict[str, Any]", settings)

    @property
    def disabled(self) -> bool:
        return self._settings.get("disabled") is True

    def parse(self) -> UpstreamConfig:
        self._check_name()
        transport = self._transport()
        if transport is Transport.STDIO:
            return UpstreamConfig(
                name=self._name,
                transport=transport,
                command=self._text("command"),
                args=self._list("args"),
                env=self._map("env"),
                cwd=self._text("cwd") if "cwd" in self._settings else None,
                max_concurrent=self._max_concurrent(MAX_CONCURRENT_STDIO),
                trust_annotations=self._trust_annotations(),
                isolation=self._isolation(),
            )
        return UpstreamConfig(
            name=self._name,
            transport=transport,
            url=self._url(),
            headers=self._headers(),
            max_concurrent=self._max_concurrent(MAX_CONCURRENT_HTTP),
            trust_annotations=self._trust_annotations(),
            isolation=self._isolation(),
        )

    def _check_name(self) -> None:
        if not _NAME.fullmatch(self._name):
            better = re.sub(r"[^a-z0-9]+", "-", self._name.lower()).strip("-")[:24].strip("-") or "upstream-1"
            raise self._error(f"names are 1 to 24 of a-z, 0-9 and '-'; rename it, for example to '{better}'")

    def _transport(self) -> Transport:
        told = self._settings.get("type", self._settings.get("transport"))
        if told == "sse":
            raise self._error(
                "'sse' is a transport that MCP has retired; use the server's streamable HTTP URL ('http')"
            )
        if told is not None:
            if not isinstance(told, str) or told not in _TRANSPORTS:
                raise self._error(f"'type' must be one of {', '.join(_TRANSPORTS)}")
            return _TRANSPORTS[told]
        given = [key for key in ("command", "url") if key in self._settings]
        if len(given) != 1:
            raise self._error("give either a 'command' (stdio) or a 'url' (HTTP), or say which with 'type'")
        return Transport.STDIO if given == ["command"] else Transport.HTTP

    def _url(self) -> str:
        url = self._text("url")
        try:
            parts = urlsplit(url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or not url.isprintable() or " " in url:
            raise self._error("'url' must be an http:// or https:// URL with a host")
        return url

    def _headers(self) -> dict[str, str]:
        headers = self._map("headers")
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise self._error(f"header '{name[:64]}' is no valid HTTP header: one line of visible ASCII characters")
        return headers

    def _ours(self) -> dict[str, Any]:
        ours = self._settings.get("ringback", {})
        if not isinstance(ours, dict):
            raise self._error("'ringback' must be an object, for example {\"max_concurrent\": 8}")
        settings = cast("dict[str, Any]", ours)
        if unknown := sorted(set(settings) - set(_SETTINGS)):
            raise self._error(f"'ringback' has no setting '{unknown[0][:64]}'; there is {', '.join(_SETTINGS)}")
        return settings

    def _trust_annotations(self) -> bool:
        value = self._ours().get("trust_annotations", False)
        if not isinstance(value, bool):
            raise self._error("'ringback.trust_annotations' must be true or false")
        return value

    def _isolation(self) -> Isolation:
        value = self._ours().get("isolation", Isolation.SHARED)
        if not isinstance(value, str) or value not in set(Isolation):
            raise self._error(f"'ringback.isolation' must be one of {', '.join(Isolation)}")
        return Isolation(value)

    def _max_concurrent(self, default: int) -> int:
        value = self._ours().get("max_concurrent", default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_CONCURRENT_MAX:
            raise self._error(f"'ringback.max_concurrent' must be a whole number from 1 to {MAX_CONCURRENT_MAX}")
        return value

    # -- values of the three shapes that occur, expanded --

    def _text(self, key: str) -> str:
        value = self._settings.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self._error(f"'{key}' must be a text that is not empty")
        return self._expand(value, key)

    def _list(self, key: str) -> tuple[str, ...]:
        value = self._settings.get(key, [])
        if not isinstance(value, list) or not _all_text(cast("list[Any]", value)):
            raise self._error(f"'{key}' must be a list of texts; quote numbers")
        return tuple(self._expand(item, key) for item in cast("list[str]", value))

    def _map(self, key: str) -> dict[str, str]:
        value = self._settings.get(key, {})
        if not isinstance(value, dict) or not _all_text(list(cast("dict[str, Any]", value).values())):
            raise self._error(f"'{key}' must be an object of texts; quote numbers and true/false")
        return {name: self._expand(text, f"{key}.{name}") for name, text in cast("dict[str, str]", value).items()}

    def _expand(self, text: str, key: str) -> str:
        if "\0" in text:
            raise self._error(f"'{key}' holds a NUL character")
        environment = self._environment
        if environment is None:
            return text
        return _PLACEHOLDER.sub(lambda match: self._lookup(match[1], key, environment), text)

    def _lookup(self, placeholder: str, key: str, environment: Mapping[str, str]) -> str:
        if placeholder.startswith("input:"):
            raise self._error(
                f"'{key}' asks for ${{{placeholder[:64]}}}; nobody can be asked, so use ${{ENV_VARIABLE}}"
            )
        if not (match := _VARIABLE.fullmatch(placeholder)):
            raise self._error(
                f"'{key}' holds ${{{placeholder[:64]}}}; write ${{NAME}}, ${{env:NAME}} or ${{NAME:-default}}"
            )
        name, default = match[1], cast("str | None", match[2])
        value = environment.get(name)
        if default is not None:
            return value or default  # as in a shell: the default also stands in for an empty value
        if value is None:
            raise self._error(
                f"'{key}' needs the environment variable {name}, which is not set; set it before starting"
            )
        return value

    @property
    def _error(self) -> Callable[[str], ConfigError]:
        return lambda problem: ConfigError(f"{self._where}: {problem}.")


def _all_text(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
