"""What depends on the platform: what starts the service with the session, and where clients keep their files."""

import plistlib
from pathlib import Path

import pytest

from ringback.cli.client_files.clients import CLIENTS, Places, find_client
from ringback.cli.client_files.service_units import describe_task, make_service_unit


def make_places(platform: str, **environment: str) -> Places:
    return Places(home=Path("/home/a b"), folder=Path("/work"), platform=platform, environment=environment)


def test_a_unit_of_systemd_quotes_what_it_would_expand() -> None:
    unit = make_service_unit(('/opt/100% "r"/$x',), make_places("linux", PATH="/a b:$HOME", XDG_CONFIG_HOME="/c%d"))

    assert unit is not None
    assert unit.path == Path("/c%d/systemd/user/ringback.service")
    lines = unit.content.decode().splitlines()
    assert r'ExecStart="/opt/100%% \"r\"/$$x" "mcp-service"' in lines
    assert 'Environment="PATH=/a b:$HOME"' in lines
    assert "EnvironmentFile=-/c%%d/ringback/environment" in lines


def test_an_agent_of_launchd_has_the_command_and_the_path_of_the_shell() -> None:
    unit = make_service_unit(("/opt/ringback",), make_places("darwin", PATH="/usr/bin"))

    assert unit is not None
    assert unit.path == Path("/home/a b/Library/LaunchAgents/dev.ringback.service.plist")
    agent = plistlib.loads(unit.content)
    assert agent["ProgramArguments"] == ["/opt/ringback", "mcp-service"]
    assert agent["EnvironmentVariables"]["PATH"] == "/usr/bin"


def test_on_other_platforms_the_words_name_what_to_start() -> None:
    windows, other = make_places("win32"), make_places("freebsd14")

    assert make_service_unit(("C:\\ringback.exe",), windows) is None
    assert describe_task(("C:\\ringback.exe",), windows) == (
        "To start it with your session: schtasks /Create /SC ONLOGON /TN Ringback "
        r'/TR "\"C:\ringback.exe\" \"mcp-service\""'
    )
    assert describe_task(("/a b/ringback",), other).endswith("run there: '/a b/ringback' mcp-service")


# -- where clients keep their files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "platform", "environment", "path"),
    [
        ("claude-code", "linux", {}, "/home/a b/.claude.json"),
        ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": "/c"}, "/c/.claude.json"),
        ("claude-desktop", "darwin", {}, "/home/a b/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", {"APPDATA": "/roaming"}, "/roaming/Claude/claude_desktop_config.json"),
        ("claude-desktop", "linux", {}, "/home/a b/.config/Claude/claude_desktop_config.json"),
        ("cursor", "darwin", {}, "/home/a b/.cursor/mcp.json"),
        ("vscode", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/Code/User/mcp.json"),
        ("vscode", "linux", {"XDG_CONFIG_HOME": "x"}, "/home/a b/.config/Code/User/mcp.json"),
        ("vscode", "darwin", {}, "/home/a b/Library/Application Support/Code/User/mcp.json"),
        ("vscode", "win32", {}, "/home/a b/AppData/Roaming/Code/User/mcp.json"),
        ("codex", "linux", {"CODEX_HOME": "/x"}, "/x/config.toml"),
        ("codex", "linux", {}, "/home/a b/.codex/config.toml"),
        ("gemini", "win32", {}, "/home/a b/.gemini/settings.json"),
        ("windsurf", "linux", {}, "/home/a b/.codeium/windsurf/mcp_config.json"),
    ],
)
def test_the_file_of_a_user_is_where_the_client_keeps_it(
    client: str, platform: str, environment: dict[str, str], path: str
) -> None:
    found = find_client(client)

    assert found is not None
    assert found.find_user_file(make_places(platform, **environment)) == Path(path)


def test_the_file_of_a_project_is_below_its_folder() -> None:
    found = {client.name: client.find_project_file(make_places("linux")) for client in CLIENTS}

    assert found == {
        "claude-code": Path("/work/.mcp.json"),
        "claude-desktop": None,
        "cursor": Path("/work/.cursor/mcp.json"),
        "vscode": Path("/work/.vscode/mcp.json"),
        "codex": Path("/work/.codex/config.toml"),
        "gemini": Path("/work/.gemini/settings.json"),
        "windsurf": None,
    }
