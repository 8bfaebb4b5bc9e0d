"""`ringback connect`: what it shows, writes and takes back, in the home folder of a user."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.cli.commands import connect
from ringback.cli.embedded_service.paths import ServicePaths
from ringback.cli.embedded_service.runtime_file import RunningService
from ringback.cli.output import EXIT_INTERRUPTED
from tests.support.mocked_requests import list_requests
from tests.unit.cli.conftest import Run

SERVERS = """{
  "mcpServers": {
    "GitHub": {"url": "https://api.githubcopilot.com/mcp/", "headers": {"Authorization": "Bearer ${env:GITHUB_TOKEN}"}},
    "linear": {"url": "https://mcp.linear.app/mcp"},
    "db": {"command": "dbhub", "args": ["--dsn", "postgres://shop:pa55word@localhost/shop"]},
    "old": {"url": "https://mcp.example.com/sse"}
  }
}
"""

Connect = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A user of Cursor."""
    folder = tmp_path / "home"
    (folder / ".cursor").mkdir(parents=True)
    (folder / ".cursor" / "mcp.json").write_text(SERVERS)
    return folder


@pytest.fixture
def run_connect(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(connect, "find_program", lambda: ("/opt/ringback",))
    environment = {"HOME": str(home), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""}

    def connect_with(*arguments: Any, path: str = "/usr/bin") -> Result:
        return run("connect", *arguments, env={**environment, "PATH": path})

    return connect_with


def list_files(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_without_a_client_the_files_that_were_found_are_listed(run_connect: Connect, home: Path) -> None:
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text("broken = \n")

    listed = run_connect()

    assert listed.exit_code == 0
    assert listed.stdout == (
        f"cursor          {home}/.cursor/mcp.json: 4 servers\n"
        f"codex           {home}/.codex/config.toml is not valid TOML: line 1, column 10.\n"
    )


def test_in_the_home_folder_no_file_is_listed_twice(
    run_connect: Connect, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)

    assert run_connect().stdout == f"cursor          {home}/.cursor/mcp.json: 4 servers\n"


def test_without_write_the_plan_is_shown_and_nothing_is_written(run_connect: Connect, home: Path) -> None:
    before = list_files(home)

    shown = run_connect("cursor")

    assert shown.exit_code == 0
    assert shown.stdout == (
        f"Cursor: {home}/.cursor/mcp.json\n"
        "  GitHub: through `ringback mcp --upstream github`\n"
        "  linear: through `ringback mcp --upstream linear`\n"
        "  db: through `ringback mcp --upstream db`\n"
        "    Its command is not found on this machine. Install it, or write its whole path: until then, the service cannot "
        "start it.\n"
        "  old: stays. Its transport is SSE, which MCP has retired; give it its streamable HTTP URL.\n"
        "The service needs these variables: GITHUB_TOKEN.\n"
        f"Add each as a line NAME=VALUE to {home}/.config/ringback/environment (chmod 600). The service reads the file within "
        "seconds.\n"
        "Nothing was written. Repeat the command with --write to write both files.\n"
        "`ringback mcp` starts the service when a client needs it. To start it with your session, add --service.\n"
    )
    assert list_files(home) == before


@pytest.mark.parametrize(
    ("entry", "options", "is_named"),
    [
        ({"command": "dbhub"}, (), True),
        ({"command": "installed"}, (), False),
        ({"command": "./installed", "cwd": "{bin}"}, (), False),
        ({"command": "{bin}/installed"}, (), False),
        ({"command": "{bin}/dbhub"}, (), True),
        ({"command": "hidden", "env": {"PATH": "{bin}/other"}}, (), False),
        ({"command": "${env:PROGRAM}"}, (), False),
        ({"command": "dbhub"}, ("--url", "http://127.0.0.1:8090"), False),
        ({"url": "https://mcp.linear.app/mcp"}, (), False),
    ],
)
def test_a_server_whose_command_is_not_found_is_named(
    run_connect: Connect, home: Path, entry: dict[str, Any], options: tuple[str, ...], *, is_named: bool
) -> None:
    """The service at another URL may run on another machine."""
    folder = home / "bin"
    for program in (folder / "installed", folder / "other" / "hidden"):
        program.parent.mkdir(exist_ok=True)
        program.touch(mode=0o755)
    text = json.dumps({"mcpServers": {"db": entry}}).replace("{bin}", str(folder))
    (home / ".cursor" / "mcp.json").write_text(text)

    shown = run_connect("cursor", *options, path=str(folder))

    assert "  db: through" in shown.stdout
    assert ("Its command is not found" in shown.stdout) == is_named


@pytest.mark.parametrize("url", ["127.0.0.1:8090", "ftp://ringback.example", "https://ringback.example/?key=1"])
def test_a_url_that_no_client_could_use_is_refused_before_anything_is_written(
    run_connect: Connect, home: Path, url: str
) -> None:
    before = list_files(home)

    refused = run_connect("cursor", "--url", url, "--write")

    assert refused.exit_code == 2
    assert "The base URL must be" in refused.stderr
    assert list_files(home) == before


def test_a_named_pipe_is_refused_and_not_waited_for(run_connect: Connect, home: Path) -> None:
    os.mkfifo(home / "pipe")

    for option in ("--file", "--config"):
        refused = run_connect("cursor", option, str(home / "pipe"), "--url", "http://127.0.0.1:8090")
        assert refused.exit_code == 2
        assert "is no regular file" in refused.stderr


def test_write_names_what_to_do_next_and_shows_no_secret(run_connect: Connect, home: Path) -> None:
    written = run_connect("cursor", "--write")

    assert written.exit_code == 0
    assert (
        "The service needs these variables: GITHUB_TOKEN.\n"
        f"Add each as a line NAME=VALUE to {home}/.config/ringback/environment (chmod 600)."
    ) in written.stdout
    assert "If linear asks for a login: ringback upstreams login linear" in written.stdout
    assert "If GitHub asks" not in written.stdout
    assert "ringback listen --notify" in written.stdout
    assert "pa55word" not in written.output
    entries = json.loads((home / ".cursor" / "mcp.json").read_text())["mcpServers"]
    assert entries["db"] == {"command": "/opt/ringback", "args": ["mcp", "--upstream", "db"]}
    config = json.loads((home / ".config" / "ringback" / "mcp.json").read_text())["mcpServers"]
    assert list(config) == ["github", "linear", "db"]


@pytest.mark.parametrize(
    ("client", "file", "text", "member"),
    [
        (
            "gemini",
            ".gemini/settings.json",
            '{"mcpServers": {"db": {"command": "x", "includeTools": ["a"]}}}',
            "includeTools",
        ),
        ("codex", ".codex/config.toml", '[mcp_servers.db]\ncommand = "x"\nenabled_tools = ["a"]\n', "enabled_tools"),
    ],
    ids=["gemini", "codex"],
)
def test_a_list_of_tools_that_would_leave_out_ringback_s_own_is_named(
    run_connect: Connect, home: Path, client: str, file: str, text: str, member: str
) -> None:
    (home / file).parent.mkdir()
    (home / file).write_text(text)

    shown = run_connect(client)

    assert f"Its '{member}' leaves out Ringback's tools" in shown.output.replace("\n", " ")


def test_variables_that_the_service_has_in_its_file_are_not_asked_for(run_connect: Connect, home: Path) -> None:
    environment = home / ".config" / "ringback" / "environment"
    environment.parent.mkdir(parents=True)
    environment.write_text("GITHUB_TOKEN=ghp_secret\n")

    written = run_connect("cursor", "--write")

    assert written.exit_code == 0
    assert "these variables" not in written.stdout
    assert "ghp_secret" not in written.output


def test_variables_that_a_client_passes_on_if_they_are_set_are_named(run_connect: Connect, home: Path) -> None:
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text('[mcp_servers.db]\ncommand = "dbhub"\nenv_vars = ["DATABASE_URL"]\n')

    written = run_connect("codex", "--write")

    assert "The service passes these variables on if they are set: DATABASE_URL.\nAdd each as a line" in written.stdout


def test_undo_gives_the_same_bytes_back_and_a_second_one_says_that_there_is_nothing(
    run_connect: Connect, home: Path
) -> None:
    before = list_files(home)
    run_connect("cursor", "--write")

    undone = run_connect("cursor", "--undo")

    assert undone.stdout == f"{home}/.cursor/mcp.json has the bytes that it had before.\n"
    assert list_files(home) == before
    again = run_connect("cursor", "--undo")
    assert (again.exit_code, "no record" in again.stderr) == (2, True)


def test_a_second_write_changes_nothing(run_connect: Connect, home: Path) -> None:
    run_connect("cursor", "--write")
    before = list_files(home)

    again = run_connect("cursor", "--write")

    assert "GitHub: stays. It is Ringback already." in again.stdout
    assert "Nothing to change." in again.stdout
    assert list_files(home) == before


@respx.mock
def test_a_service_that_the_user_keeps_running_is_named_by_its_url(run_connect: Connect, home: Path) -> None:
    url, config = "https://ringback.example.com", home / "ringback.json"
    reload = respx.post(f"{url}/v1/upstreams/reload").respond(403, json={"detail": "Your key lacks the scope admin."})

    arguments = ("--url", f"{url}/mcp/", "--config", str(config), "--api-key", "rbk_secret")
    written = run_connect("cursor", "--write", *arguments)

    assert reload.calls.last.request.headers["authorization"] == "Bearer rbk_secret"
    assert "did not read its configuration again: " in written.stderr
    assert "The client needs your API key in its environment: RINGBACK_API_KEY." in written.stdout

    assert f"linear: through {url}/mcp/linear" in written.stdout
    assert "starts the service" not in written.stdout
    entry = json.loads((home / ".cursor" / "mcp.json").read_text())["mcpServers"]["linear"]
    assert entry == {"url": f"{url}/mcp/linear", "headers": {"Authorization": "Bearer ${env:RINGBACK_API_KEY}"}}
    assert "linear" in json.loads(config.read_text())["mcpServers"]
    assert f"GITHUB_TOKEN.\nSet them in the environment of the service at {url}, and restart it." in written.stdout
    assert "rbk_secret" not in written.output
    assert "linear: stays. It is Ringback already." in run_connect("cursor").stdout


def test_a_project_s_file_is_that_of_the_current_folder(run_connect: Connect, tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    file = tmp_path / ".vscode" / "mcp.json"
    file.write_text('{"servers": {"files": {"command": "npx", "args": ["${workspaceFolder}/docs"]}}}')

    run_connect("vscode", "--scope", "project", "--write")

    config = json.loads((tmp_path / "home" / ".config" / "ringback" / "mcp.json").read_text())["mcpServers"]
    assert config == {"files": {"command": "npx", "args": [f"{tmp_path}/docs"], "cwd": str(tmp_path)}}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["emacs"], "there is claude-code, claude-desktop, cursor"),
        (["windsurf"], "there is no such file"),
        (["windsurf", "--scope", "project"], "Windsurf has no file for a project. Leave --scope out"),
        (["cursor", "--undo"], "If it has changed another one, name it as then: --file FILE"),
        (["cursor", "--config", "other.json"], "name the service of this file with --url"),
        (["cursor", "--write", "--undo"], "give --write or --undo, not both"),
        (["vscode", "--file", "mcp.json", "--input", "x"], "write it as ID=VARIABLE"),
    ],
)
def test_an_option_that_leads_nowhere_is_an_error_that_says_what_to_do(
    run_connect: Connect, arguments: list[str], problem: str
) -> None:
    refused = run_connect(*arguments)

    assert refused.exit_code == 2
    assert problem in " ".join(refused.output.replace("│", " ").split())


def test_a_broken_configuration_of_ringback_is_left_alone(run_connect: Connect, home: Path) -> None:
    config = home / ".config" / "ringback" / "mcp.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"mcpServers": ')
    before = list_files(home)

    refused = run_connect("cursor", "--write")

    assert refused.exit_code == 2
    assert f"{config} is not valid JSON with comments: line 1, column 16. Nothing was written." in refused.stderr
    assert list_files(home) == before


@pytest.mark.parametrize(("client", "file"), [("cursor", ".cursor/mcp.json"), ("claude-desktop", "desktop.json")])
@respx.mock
def test_an_undo_lets_the_service_to_which_the_client_was_connected_read_its_configuration_again(
    run_connect: Connect, home: Path, client: str, file: str
) -> None:
    url = "https://ringback.example.com/base"
    reload = respx.post(f"{url}/v1/upstreams/reload").respond(503)
    (home / file).write_text('{"mcpServers": {"git": {"command": "uvx"}}}')
    run_connect(client, "--write", "--file", str(home / file), "--url", url, "--api-key", "rbk_1")
    written = reload.call_count

    undone = run_connect(client, "--undo", "--file", str(home / file), "--api-key", "rbk_1")

    assert (undone.exit_code, reload.call_count > written) == (0, True)
    assert reload.calls.last.request.headers["authorization"] == "Bearer rbk_1"
    assert f"The service at {url} did not read its configuration again" in undone.stderr


@respx.mock
def test_an_undo_of_changes_with_and_without_a_key_requests_one_reload_with_the_key(
    run_connect: Connect, home: Path
) -> None:
    """A second request without the key was refused, and the undo said that the configuration was not read again."""
    file, url = home / "servers.json", "https://ringback.example.com"
    reload = respx.post(f"{url}/v1/upstreams/reload").respond(403, json={"detail": "Your key lacks the scope admin."})
    file.write_text('{"mcpServers": {"git": {"command": "uvx"}}}')
    run_connect("cursor", "--write", "--file", str(file), "--url", url)
    document = json.loads(file.read_text())
    document["mcpServers"]["shop"] = {"command": "uvx"}
    file.write_text(json.dumps(document))
    run_connect("cursor", "--write", "--file", str(file), "--url", url, "--api-key", "rbk_1")
    written = reload.call_count

    run_connect("cursor", "--undo", "--file", str(file), "--api-key", "rbk_1")

    keys = [each.headers.get("authorization") for each in list_requests(reload)[written:]]
    assert (written, keys) == (2, ["Bearer rbk_1"])


@pytest.mark.parametrize("written_with", [[], ["--api-key", "rbk_1"]])
@respx.mock
def test_an_undo_sends_a_service_no_key_of_another_one(run_connect: Connect, written_with: list[str]) -> None:
    """RINGBACK_API_KEY may be the key for the service that the user has moved to."""
    url = "https://former.example.com"
    reload = respx.post(f"{url}/v1/upstreams/reload").respond(401, json={"detail": "Send an API key."})
    run_connect("cursor", "--write", "--url", url, *written_with)

    undone = run_connect("cursor", "--undo", "--api-key", "rbk_2")

    assert undone.exit_code == 0
    assert "authorization" not in reload.calls.last.request.headers
    assert f"The service at {url} did not read its configuration again" in undone.stderr


@pytest.mark.parametrize("option", ["--write", "--undo"])
@respx.mock
def test_a_user_who_waits_no_longer_for_the_service_has_read_what_was_done(
    run_connect: Connect, home: Path, option: str
) -> None:
    def interrupt(_: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    reload = respx.post("https://ringback.example.com/v1/upstreams/reload").respond(503)
    if option == "--undo":
        run_connect("cursor", "--write", "--url", "https://ringback.example.com")
    reload.mock(side_effect=interrupt)

    interrupted = run_connect("cursor", option, "--url", "https://ringback.example.com")

    assert interrupted.exit_code == EXIT_INTERRUPTED
    said = "Take it back with --undo." if option == "--write" else "has the bytes that it had before."
    assert said in interrupted.stdout


def test_a_proxy_variable_that_names_no_proxy_does_not_hide_what_was_written(run: Run, home: Path) -> None:
    environment = {"HOME": str(home), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": "", "HTTPS_PROXY": "nonsense://"}

    written = run("connect", "cursor", "--write", "--url", "https://ringback.example.com", env=environment)

    assert (written.exit_code, "Take it back with --undo." in written.stdout) == (0, True)
    assert "The service at https://ringback.example.com did not read its configuration again" in written.stderr


@pytest.mark.parametrize("option", ["--write", "--undo"])
def test_the_user_s_own_service_reads_its_configuration_again(
    run_connect: Connect, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    if option == "--undo":
        run_connect("cursor", "--write")
    running = RunningService(url="http://127.0.0.1:8090", api_key="rbk_1", pid=1)

    def read_running_service(_: ServicePaths) -> RunningService:
        return running

    monkeypatch.setattr(connect, "read_running_service", read_running_service)
    reload = service.post("/v1/upstreams/reload").respond(503)

    ended = run_connect("cursor", option)

    assert ended.exit_code == 0
    assert reload.calls.last.request.headers["authorization"] == "Bearer rbk_1"
    assert "did not read its configuration again" in ended.stderr


# -- the unit that starts the service -----------------------------------------------------------------------------------------


def test_with_service_the_unit_is_written_once_and_another_one_stays(run_connect: Connect, home: Path) -> None:
    unit = home / ".config" / "systemd" / "user" / "ringback.service"

    written = run_connect("cursor", "--write", "--service")

    assert "systemctl --user enable --now ringback" in written.stdout
    assert 'ExecStart="/opt/ringback" "mcp-service"\n' in unit.read_text()
    assert 'Environment="PATH=/usr/bin"\n' in unit.read_text()
    assert f"EnvironmentFile=-{home}/.config/ringback/environment\n" in unit.read_text()
    assert run_connect("cursor", "--write", "--service").exit_code == 0
    unit.write_text("mine")
    refused = run_connect("cursor", "--write", "--service")
    assert (refused.exit_code, unit.read_text()) == (2, "mine")
    assert "exists with another content" in refused.stderr
