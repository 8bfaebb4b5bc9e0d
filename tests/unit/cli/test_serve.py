"""The settings and upstreams with which `ringback serve` starts the server."""

import json
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_network
from pathlib import Path

import pytest
from typer.testing import Result

from ringback import server
from ringback.bootstrap import ReadConfigs
from ringback.domain.errors import StoreUnavailable
from ringback.server import AddressTaken
from ringback.settings import Settings, SettingsError
from ringback.upstreams.config import UpstreamConfig

Run = Callable[..., Result]


class RecordingServer:
    """Replaces the server and records its arguments."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.upstreams: Sequence[UpstreamConfig] = ()

    def __call__(self, settings: Settings, upstreams: Sequence[UpstreamConfig], *, read_configs: ReadConfigs) -> None:
        self.settings = settings
        self.upstreams = upstreams
        self.read_configs = read_configs

    @property
    def names(self) -> list[str]:
        return [upstream.name for upstream in self.upstreams]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> RecordingServer:
    stand_in = RecordingServer()
    monkeypatch.setattr(server, "serve", stand_in)
    return stand_in


def test_options_go_over_the_environment(run: Run, served: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_PORT", "1234")
    monkeypatch.setenv("RINGBACK_HOST", "::1")

    assert run("serve", "--port", "4321", "--database", "sqlite:///other.db", "--log-format", "json").exit_code == 0

    assert (served.settings.port, served.settings.host) == (4321, "::1")
    assert (served.settings.database_url, served.settings.log_format) == ("sqlite:///other.db", "json")
    assert served.settings.auth == "keys"


def test_a_misspelt_variable_is_named_with_the_setting_that_it_resembles(
    run: Run, served: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGBACK_DATABASEURL", "sqlite:///other.db")

    ran = run("serve")

    assert served.settings.database_url == "sqlite:///ringback.db"
    assert "RINGBACK_DATABASEURL is no setting and was ignored. Did you mean RINGBACK_DATABASE_URL?" in ran.stderr


def test_upstreams_come_from_the_file_and_from_options(run: Run, served: RecordingServer, tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"git": {"command": "mcp-server-git"}}}))

    run("serve", "--config", str(config), "--upstream", "web=http://127.0.0.1:9/mcp")

    assert sorted(served.names) == ["git", "web"]

    config.write_text(json.dumps({"mcpServers": {"time": {"command": "mcp-server-time"}}}))
    assert sorted(upstream.name for upstream in served.read_configs()) == ["time", "web"]


def test_development_needs_no_key_and_calls_back_to_this_machine(run: Run, served: RecordingServer) -> None:
    ran = run("serve", "--dev")

    assert (served.settings.auth, served.settings.callback_http) == ("off", True)
    assert ip_network("127.0.0.0/8") in served.settings.callback_private_cidrs
    assert served.names == ["demo"]
    assert "ringback call demo count_primes --wait" in ran.stderr


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ((), "--wait\n"),
        (("--port", "8090"), "--wait\n"),
        (("--port", "9123"), "--wait --url http://127.0.0.1:9123\n"),
        (("--port", "9123", "--host", "::1"), "--wait --url http://[::1]:9123\n"),
        (("--port", "0"), "--wait --url URL, with the url that is logged below\n"),
    ],
)
def test_the_hint_of_development_mode_names_the_port(
    run: Run, served: RecordingServer, options: tuple[str, ...], command: str
) -> None:
    ran = run("serve", "--dev", *options)

    assert served.names == ["demo"]
    assert ran.stderr.endswith(f"ringback call demo count_primes {command}")


def test_development_mode_keeps_other_settings(
    run: Run, served: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGBACK_CALLBACK_PRIVATE_CIDRS", "10.0.0.0/8")

    run("serve", "--dev", "--upstream", "web=http://127.0.0.1:9/mcp")

    assert ip_network("10.0.0.0/8") in served.settings.callback_private_cidrs
    assert served.settings.database_url == Settings().database_url
    assert served.names == ["web"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dev", "--host", "0.0.0.0"), "Listen on 127.0.0.1"),
        (("--port", "99999"), "RINGBACK_PORT"),
        (("--log-level", "loud"), "RINGBACK_LOG_LEVEL"),
        (("--upstream", "git"), "NAME=COMMAND_OR_URL"),
        (("--config", "missing.json"), "missing.json"),
    ],
)
def test_an_invalid_setting_is_reported_before_anything_runs(
    run: Run, served: RecordingServer, arguments: tuple[str, ...], words: str
) -> None:
    refused = run("serve", *arguments)

    assert refused.exit_code == 2
    assert words in refused.stderr
    assert served.upstreams == ()


def test_the_old_name_of_a_setting_refuses_the_start(
    run: Run, served: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGBACK_DISCONNECT", "keep")

    refused = run("serve", "--upstream", "web=http://127.0.0.1:9/mcp")

    assert refused.exit_code == 2
    assert "RINGBACK_ON_DISCONNECT" in refused.stderr
    assert served.upstreams == ()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreUnavailable("The last 7 commits are missing.", needs_operator=True), 2),
        (SettingsError("RINGBACK_PORT: must be a number."), 2),
        (StoreUnavailable("Another service serves this database."), 75),
        (AddressTaken("Cannot listen on 127.0.0.1:8090."), 75),
    ],
)
def test_the_exit_code_of_a_failed_start_shows_whether_a_restart_can_help(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(server, "serve", refuse)
    refused = run("serve")

    assert (refused.exit_code, refused.stderr) == (code, f"Error: {error}\n")


def test_an_address_in_use_is_a_temporary_failure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(AddressTaken, match="another --port"):
        server.serve(
            Settings(port=taken.getsockname()[1], database_url=f"sqlite:///{tmp_path / 'ringback.db'}", auth="off"), []
        )


def test_a_bad_entry_is_named_and_the_others_are_served(run: Run, served: RecordingServer, tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(
        json.dumps({"mcpServers": {"Git Hub": {"command": "x"}, "old": {"url": "https://a.example/sse"}, "web": {}}})
    )

    ran = run("serve", "--config", str(config), "--upstream", "web=http://127.0.0.1:9/mcp")

    assert "Skipped entries of the configuration: old, web." in ran.stderr
    assert served.names == ["web", "git-hub", "old", "web"]
    assert [type(each) is UpstreamConfig for each in served.upstreams] == [True, True, False, False]


def test_an_upstream_of_the_command_line_takes_the_name_of_an_entry(
    run: Run, served: RecordingServer, tmp_path: Path
) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"web": {"command": "x"}}}))

    ran = run("serve", "--config", str(config), "--upstream", "web=http://127.0.0.1:9/mcp")

    assert ran.exit_code == 0
    assert [type(each) is UpstreamConfig for each in served.upstreams] == [True, False]


@pytest.mark.parametrize("entry", [{"Git": {"command": "x"}}, {"git": {"url": "https://a.example/sse"}}])
def test_a_strict_configuration_is_refused_as_a_whole(
    run: Run, served: RecordingServer, tmp_path: Path, entry: dict[str, dict[str, str]]
) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"good": {"command": "x"}, **entry}}))

    ran = run("serve", "--config", str(config), "--strict-config")

    assert (ran.exit_code, served.names) == (2, [])
    assert f"upstream '{next(iter(entry))}'" in ran.stderr
