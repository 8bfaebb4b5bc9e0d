"""One server of a client's file as one of Ringback's configuration, or the reason why it stays as it is.

References to variables stay references, in Ringback's form `${NAME}`. Literal values move as they are.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Any, Final, NoReturn, cast

from ringback.cli.client_files.clients import Client, Variables
from ringback.upstreams.config import ConfigError, parse_upstreams

MOVED_KEYS: Final = frozenset(
    {
        "type",
        "transport",
        "command",
        "args",
        "env",
        "cwd",
        "url",
        "httpUrl",
        "serverUrl",
        "headers",
        "oauth",
        "auth",
        "ringback",
        "env_vars",
        "http_headers",
        "env_http_headers",
        "bearer_token_env_var",
    }
)
"""Members that say how to reach the server. The others (`timeout`, `trust`, `enabled_tools`, …) are for the client and stay."""
_UNSUPPORTED: Final = {
    "envFile": "its variables are in a file ('envFile'); write them into 'env'",
    "headersHelper": "a command makes its headers ('headersHelper'); write them into 'headers'",
    "authProviderType": "it signs in with credentials of the client ('authProviderType')",
    "bearer_token": "Codex does not read 'bearer_token'; use 'bearer_token_env_var'",
    "experimental_environment": "it runs in another environment ('experimental_environment')",
}
_URL_KEYS: Final = ("httpUrl", "serverUrl", "url")
_HTTP_NAMES: Final = (None, "http", "streamable-http", "streamableHttp")
_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_DOLLAR_VARIABLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_RELATIVE_PATH: Final = re.compile(r"\.{1,2}(?:[/\\].*)?", re.DOTALL)
_INTERPRETER: Final = re.compile(
    r"(?:python|pypy)[0-9.]*|bash|bun|deno|dotnet|java|node|nodejs|perl|php|py|pwsh|ruby|sh|ts-node|tsx|uv|zsh"
)
"""Programs that run a file of the folder in which they are started. Those of `npx`, `docker` or `ssh` are not there."""
_SCRIPT: Final = re.compile(r"(?:[^-\s:=][^\s:=]*|[$/~].*)\.(?:[cm]?[jt]s|dll|jar|php|pl|ps1|pyz?|rb|sh)", re.DOTALL)
"""A whole path may have spaces. In a relative one they are taken for those of a shell's command."""
_NO_SCRIPT_FOLLOWS: Final = {"-c", "-m"}
"""After these options an interpreter runs a text or a module, and each file is an argument for that."""
_FOLDER_OPTION: Final = re.compile(r"(?:--(?:cwd|dir|directory|prefix)|-C)(?:=.*)?", re.DOTALL)
"""Options with which an interpreter goes to another folder first."""
_VARIABLE: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-.*)?", re.DOTALL)


class ServerKept(Exception):
    """The entry stays as it is. The message says why, and what would change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the placeholders and relative paths of a file stand for."""

    home: Path
    folder: Path | None
    """The project; None for a file of the user, whose servers run in several projects."""
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables of the environment in the place of VS Code's prompts, by the prompt's id."""


def translate_entry(settings: Any, *, client: Client, surroundings: Surroundings) -> dict[str, Any]:
    """The entry for Ringback's `mcpServers`. Raises `ServerKept`."""
    if not isinstance(settings, dict):
        _refuse_entry("it is no object")
    entry = cast("dict[str, Any]", settings)
    if entry.get("disabled") is True or entry.get("enabled") is False:
        _refuse_entry("it is disabled")
    for key, reason in _UNSUPPORTED.items():
        if entry.get(key):
            _refuse_entry(reason)
    if client.variables is Variables.NONE and "${" in json.dumps(entry, default=str):
        _refuse_entry(f"it holds '${{', which {client.title} passes on as it is and Ringback would replace")
    if surroundings.folder is None and (path := _find_relative_path(entry)) is not None:
        _refuse_entry(
            f"'{path}' depends on the folder in which {client.title} starts it, and a service has another; write the whole path"
        )
    translated = _translate_command(entry, surroundings) if "command" in entry else _translate_url(entry, client)
    if own := _translate_own_settings(entry):
        translated["ringback"] = own
    translated = _expand(translated, client, surroundings)
    _check(translated)
    return translated


def find_variables(translated: Any) -> dict[str, bool]:
    """The variables of the environment that the entry refers to, and whether it needs them: those without a default."""
    placeholders = (found.partition(":-") for found in _PLACEHOLDER.findall(json.dumps(translated)))
    return {name: not default for name, default, _ in placeholders}


def _translate_command(entry: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    env = {**_forward_variables(entry.get("env_vars", [])), **_get_object(entry, "env")}
    cwd = entry.get("cwd")
    if surroundings.folder is not None and (cwd is None or isinstance(cwd, str)):
        cwd = _join(surroundings.folder, cwd or "")
    fields = {"command": entry["command"], "args": entry.get("args"), "env": env, "cwd": cwd}
    return {key: value for key, value in fields.items() if value}


def _find_relative_path(entry: Mapping[str, Any]) -> str | None:
    """A path that surely depends on the client's folder; None if there is none. `docs/notes.txt` may be no path."""
    cwd = entry.get("cwd")
    if isinstance(cwd, str) and cwd:
        return cwd if _is_relative(cwd) else None
    args = entry.get("args")
    words = [entry.get("command"), *(cast("list[Any]", args) if isinstance(args, list) else [])]
    command, *arguments = (word if isinstance(word, str) else "" for word in words)
    if _is_relative(command) and "/" in command:
        return command
    dotted = (word for word in (command, *arguments) if _RELATIVE_PATH.fullmatch(word))
    return next(dotted, None) or _find_relative_script(command, arguments)


def _find_relative_script(command: str, arguments: Sequence[str]) -> str | None:
    """The file that an interpreter runs, such as `server.py`, if its folder is not named."""
    program = re.split(r"[/\\]", command)[-1].removesuffix(".exe")
    if not _INTERPRETER.fullmatch(program) or any(map(_FOLDER_OPTION.fullmatch, arguments)):
        return None
    own = takewhile(lambda argument: argument not in _NO_SCRIPT_FOLLOWS, arguments)
    script = next(filter(_SCRIPT.fullmatch, own), None)
    return script if script is not None and _is_relative(script) else None


def _is_relative(path: str) -> bool:
    """Not so a path that begins with a placeholder or with the home folder."""
    return bool(path) and not path.startswith(("$", "~")) and not PurePath(path).is_absolute()


def _join(folder: Path, cwd: str) -> str:
    """The working folder; one that begins with a placeholder is absolute."""
    return cwd if cwd.startswith("$") else str(PurePath(folder, cwd))


def _forward_variables(names: Any) -> dict[str, str]:
    """Codex' `env_vars`: variables that the server inherits, if they are set."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in cast("list[Any]", names)):
        _refuse_entry("its 'env_vars' are not a list of names")
    return {name: f"${{{name}:-}}" for name in cast("list[str]", names)}


def _translate_url(entry: Mapping[str, Any], client: Client) -> dict[str, Any]:
    key = next((key for key in _URL_KEYS if key in entry), None)
    if key is None:
        _refuse_entry("it has neither a command nor a URL")
    declared = entry.get("type", entry.get("transport"))
    is_sse = declared == "sse" or (
        key == "url"
        and declared is None
        and (client.url_is_sse or str(entry[key]).partition("?")[0].rstrip("/").endswith("/sse"))
    )
    if is_sse:
        _refuse_entry("its transport is SSE, which MCP has retired; give it its streamable HTTP URL")
    headers = {**_get_object(entry, "headers"), **_get_object(entry, "http_headers")}
    headers |= {name: f"${{{variable}}}" for name, variable in _get_object(entry, "env_http_headers").items()}
    if variable := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    transport = "http" if declared in _HTTP_NAMES else declared
    return {"type": transport, "url": entry[key], **({"headers": headers} if headers else {})}


def _translate_own_settings(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Ringback's own settings; a client that is registered for the client's sign-in becomes that of Ringback's."""
    own = _get_object(entry, "ringback")
    oauth = {**_get_object(entry, "oauth"), **_get_object(entry, "auth")}
    scopes = oauth.get("scopes")
    login = {
        "client_id": oauth.get("clientId") or oauth.get("CLIENT_ID"),
        "client_secret": oauth.get("clientSecret") or oauth.get("CLIENT_SECRET"),
        "scope": " ".join(map(str, cast("list[Any]", scopes))) if isinstance(scopes, list) else scopes,
    }
    given = {key: value for key, value in login.items() if value}
    return {"login": given, **own} if given else own


def _get_object(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    value: Any = entry.get(key) or {}
    if not isinstance(value, dict):
        _refuse_entry(f"its '{key}' is no object")
    return cast("dict[str, Any]", value)


def _expand(value: Any, client: Client, surroundings: Surroundings) -> Any:
    match value:
        case str():
            return _expand_text(value, client, surroundings)
        case list():
            return [_expand(each, client, surroundings) for each in cast("list[Any]", value)]
        case dict():
            return {key: _expand(each, client, surroundings) for key, each in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _expand_text(text: str, client: Client, surroundings: Surroundings) -> str:
    if client.variables is Variables.DOLLAR:
        text = _DOLLAR_VARIABLE.sub(r"${\1}", text)
    return _PLACEHOLDER.sub(lambda found: _expand_placeholder(found[1], client, surroundings), text)


def _expand_placeholder(placeholder: str, client: Client, surroundings: Surroundings) -> str:
    folder = surroundings.folder
    known = {"userHome": str(surroundings.home), "pathSeparator": os.sep, "/": os.sep}
    if folder is not None:
        known |= {"workspaceFolder": str(folder), "workspaceFolderBasename": folder.name, "workspaceRoot": str(folder)}
    if client.variables is Variables.ENV_PREFIX and placeholder in known:
        return known[placeholder]
    if placeholder.startswith("input:"):
        name = placeholder.removeprefix("input:")
        if name not in surroundings.inputs:
            _refuse_entry(
                f"{client.title} asks for '{name}'; put it into a variable and repeat with --input {name}=VARIABLE"
            )
        return f"${{{surroundings.inputs[name]}}}"
    if placeholder.startswith("workspace"):
        _refuse_entry(f"it holds ${{{placeholder}}}, and a service has no workspace; write the path")
    if (found := _VARIABLE.fullmatch(placeholder)) is None:
        _refuse_entry(f"it holds ${{{placeholder[:64]}}}, which Ringback cannot replace as {client.title} does")
    return f"${{{found[0].removeprefix('env:')}}}"


def _check(translated: Mapping[str, Any]) -> None:
    """Keep what the service would skip, with the service's advice."""
    try:
        text = json.dumps({"mcpServers": {"server": _fill_placeholders(translated)}}, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        _refuse_entry("it holds half a character (a lone surrogate)")
    try:
        loaded = parse_upstreams(text, source="", environment=None)
    except ConfigError:
        _refuse_entry("it holds a number that is too large, or more than a file of Ringback may have")
    for skipped in loaded.skipped:
        _refuse_entry(skipped.advice.rstrip("."))


def _fill_placeholders(translated: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with an address in the place of placeholders in its URL, whose values are not known here."""
    if not isinstance(url := translated.get("url"), str):
        return dict(translated)
    filled = _PLACEHOLDER.sub(lambda found: found[1].partition(":-")[2] or "placeholder", url)
    return {**translated, "url": f"http://{filled}" if url.startswith("${") and "://" not in filled else filled}


def _refuse_entry(reason: str) -> NoReturn:
    raise ServerKept(reason)
