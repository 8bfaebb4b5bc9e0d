"""The table of clients: where each keeps its MCP servers, and how it writes them.

Every format was read in the client's documentation in November 2026:

    claude-code     code.claude.com/docs/en/mcp: `~/.claude.json` (user, and local by project), `.mcp.json` (project)
    claude-desktop  modelcontextprotocol.io/docs/develop/connect-local-servers: commands only
    cursor          cursor.com/docs/mcp
    vscode          code.visualstudio.com/docs/copilot/reference/mcp-configuration
    codex           developers.openai.com/codex/mcp and …/config-reference: TOML
    gemini          geminicli.com/docs/tools/mcp-server
    windsurf        docs.windsurf.com/windsurf/cascade/mcp
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from ringback.cli.client_files.documents import ANY_KEY
from ringback.cli.home_folder import find_base_folder, find_home


class Format(StrEnum):
    JSON = "json"
    JSON_WITH_COMMENTS = "json_with_comments"
    TOML = "toml"


class FileScope(StrEnum):
    """Whose servers a file has: the user's, or those of the project in the current folder."""

    USER = "user"
    PROJECT = "project"


class Variables(StrEnum):
    """How a client writes a reference to a variable of its environment."""

    NONE = "none"
    BRACES = "braces"
    """`${NAME}` and `${NAME:-default}`"""
    ENV_PREFIX = "env_prefix"
    """`${env:NAME}`"""
    DOLLAR = "dollar"
    """`$NAME` and `${NAME}`"""


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of a user's files. Handed in, so that tests have folders of their own."""

    home: Path
    folder: Path
    """The current folder: a project, if the client is started there."""
    platform: str
    """As `sys.platform`."""
    environment: Mapping[str, str] = field(repr=False)

    def find_application_data(self) -> Path:
        """Where applications with a window keep their settings."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return Path(self.environment.get("APPDATA") or self.home / "AppData" / "Roaming")
        return self.find_configuration()

    def find_configuration(self) -> Path:
        return find_base_folder(self.environment, "XDG_CONFIG_HOME", ".config", home=self.home)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    name: str
    title: str
    user_file: str
    """Below the home folder."""
    has_window_settings: bool = False
    """Whether `user_file` is below the platform's folder for applications instead."""
    folder_variable: str | None = None
    """A variable of the environment that names the folder of `user_file`."""
    project_file: str | None
    """Below the folder of the project; None if the client has no such file."""
    format: Format
    containers: tuple[tuple[str, ...], ...] = (("mcpServers",),)
    """Paths of the objects that map names to servers."""
    url_key: str | None = "url"
    """The member with the URL of a streamable HTTP server; None if the client only starts commands."""
    declares_type: bool = False
    """Whether entries have `type`: `http` or `stdio`."""
    url_is_sse: bool = False
    """Whether `url` without a type is a server with the retired transport SSE."""
    variables: Variables = Variables.NONE
    keeps_history: bool = False
    """Whether the file also has what users typed, which makes it large."""
    forwards_variables: bool = False
    """Whether commands inherit only variables that their entry names (`env_vars`)."""
    restart: str
    """How the client reads its file again: what the user does after the change."""

    def find_user_file(self, places: Places) -> Path:
        if self.folder_variable is not None and (folder := places.environment.get(self.folder_variable)):
            return Path(folder) / Path(self.user_file).name
        base = places.find_application_data() if self.has_window_settings else places.home
        return base / self.user_file

    def find_project_file(self, places: Places) -> Path | None:
        return None if self.project_file is None else places.folder / self.project_file


CLIENTS: Final = (
    Client(
        name="claude-code",
        title="Claude Code",
        user_file=".claude.json",
        folder_variable="CLAUDE_CONFIG_DIR",
        project_file=".mcp.json",
        keeps_history=True,
        format=Format.JSON,
        containers=(("mcpServers",), ("projects", ANY_KEY, "mcpServers")),
        declares_type=True,
        variables=Variables.BRACES,
        restart="Start Claude Code anew; /mcp shows its servers.",
    ),
    Client(
        name="claude-desktop",
        title="Claude Desktop",
        user_file="Claude/claude_desktop_config.json",
        has_window_settings=True,
        project_file=None,
        format=Format.JSON,
        url_key=None,
        restart="Quit Claude Desktop and start it again.",
    ),
    Client(
        name="cursor",
        title="Cursor",
        user_file=".cursor/mcp.json",
        project_file=".cursor/mcp.json",
        format=Format.JSON_WITH_COMMENTS,
        variables=Variables.ENV_PREFIX,
        restart="Reload the window of Cursor; its settings show the servers under MCP.",
    ),
    Client(
        name="vscode",
        title="VS Code",
        user_file="Code/User/mcp.json",
        has_window_settings=True,
        project_file=".vscode/mcp.json",
        format=Format.JSON_WITH_COMMENTS,
        containers=(("servers",), ("mcp", "servers"), ("mcpServers",)),
        declares_type=True,
        variables=Variables.ENV_PREFIX,
        restart="Run the command 'MCP: List Servers' of VS Code and restart the servers.",
    ),
    Client(
        name="codex",
        title="Codex",
        user_file=".codex/config.toml",
        folder_variable="CODEX_HOME",
        project_file=".codex/config.toml",
        format=Format.TOML,
        containers=(("mcp_servers",),),
        forwards_variables=True,
        restart="Start Codex anew; /mcp shows its servers.",
    ),
    Client(
        name="gemini",
        title="Gemini CLI",
        user_file=".gemini/settings.json",
        project_file=".gemini/settings.json",
        format=Format.JSON_WITH_COMMENTS,
        url_key="httpUrl",
        url_is_sse=True,
        variables=Variables.DOLLAR,
        restart="Start Gemini CLI anew; /mcp shows its servers.",
    ),
    Client(
        name="windsurf",
        title="Windsurf",
        user_file=".codeium/windsurf/mcp_config.json",
        project_file=None,
        format=Format.JSON,
        url_key="serverUrl",
        variables=Variables.ENV_PREFIX,
        restart="Press refresh in the MCP panel of Windsurf.",
    ),
)
"""In the order in which the command lists them."""


def find_client(name: str) -> Client | None:
    return next((client for client in CLIENTS if client.name == name), None)


def get_places(platform: str) -> Places:
    return Places(home=find_home(), folder=Path.cwd(), platform=platform, environment=os.environ)
