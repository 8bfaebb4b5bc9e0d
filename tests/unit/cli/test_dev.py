"""The names that `ringback dev` derives from commands."""

from collections.abc import Callable

import pytest
from typer.testing import Result

from ringback.cli.commands.dev import derive_upstream_name, describe_endpoints


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["npx", "-y", "@modelcontextprotocol/server-filesystem@2026.1", "/srv"], "filesystem"),
        (["uvx", "mcp-server-git", "--repository", "."], "git"),
        (["uv", "run", "weather_mcp.py"], "weather"),
        (["/usr/bin/python3.12", "-m", "mcp_server_time"], "time"),
        (["python", "-m", "acme.tools.weather_server.__main__"], "weather"),
        (["python", "-u", "servers/reports.py"], "reports"),
        (["node", "dist/index.js"], "index"),
        (["env", "TOKEN=abc", "./bin/github-mcp-server", "stdio"], "github"),
        (["npx", "-y", "acme-mcp"], "acme"),
        (["http://127.0.0.1:9000/mcp"], "mcp"),
        (["mcp-server"], "server"),
        (["a-name-that-is-longer-than-names-may-be"], "a-name-that-is-longer-th"),
        (["python"], "server"),
        (["ünïcode"], "n-code"),
    ],
)
def test_a_server_is_named_by_its_command(command: list[str], name: str) -> None:
    assert derive_upstream_name(command) == name


def test_the_default_url_needs_no_option() -> None:
    assert "ringback listen\n" in describe_endpoints("http://127.0.0.1:8090", "git", has_dashboard=True)
    assert "ringback listen --url http://127.0.0.1:9\n" in describe_endpoints(
        "http://127.0.0.1:9", "git", has_dashboard=True
    )


@pytest.mark.parametrize("has_dashboard", [True, False])
def test_the_dashboard_is_named_while_it_is_served(*, has_dashboard: bool) -> None:
    shown = describe_endpoints("http://127.0.0.1:8090", "git", has_dashboard=has_dashboard)

    assert ("http://127.0.0.1:8090/ui" in shown) == has_dashboard


def test_a_program_that_does_not_exist_ends_the_command_before_the_service_starts(run: Callable[..., Result]) -> None:
    ended = run("dev", "--", "no-such-server-7")

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("Error: 'no-such-server-7' is no program that can be run.")
