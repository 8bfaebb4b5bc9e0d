"""The names that `ringback dev` derives from commands, and how long it waits for a server."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Self

import pytest
from typer.testing import Result

from ringback import server
from ringback.cli.commands import dev
from ringback.cli.commands.dev import derive_upstream_name, describe_endpoints
from ringback.client import Tool, Unavailable, Upstream


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


class StartingService:
    """A client of a service whose upstream is in the next of these states each time that it is asked."""

    states: ClassVar[list[str]] = []

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    async def tools(self, upstream: str) -> Sequence[Tool]:
        if self.states:
            raise Unavailable(status=503, type_="about:blank", title="", detail=f"{upstream} is away.", extra={})
        return [Tool(name="build_report", inputSchema={})]

    async def upstreams(self) -> Sequence[Upstream]:
        state = self.states.pop(0)
        error = "connection_lost" if state == "failing" else None
        return [Upstream(name="server", transport="stdio", state=state, last_error=error)]


@pytest.mark.parametrize(
    ("states", "ends_with"),
    [
        (["connecting", "connecting"], (0, "Tools      build_report")),
        (["connecting", "ready"], (0, "Tools      build_report")),
        (["connecting", "failing", "unread"], (2, "")),
        (["ready", "ready", "unread"], (2, "")),
    ],
)
def test_a_server_that_takes_long_to_start_is_waited_for_and_one_that_fails_is_not(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, states: list[str], ends_with: tuple[int, str]
) -> None:
    def serve(*_: Any, on_listening: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(on_listening("http://127.0.0.1:1"))

    def keep_running(_: int) -> None:
        """The command would end itself."""

    monkeypatch.setattr(StartingService, "states", states)
    monkeypatch.setattr(dev, "RingbackClient", StartingService)
    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr(signal, "raise_signal", keep_running)

    ended = run("dev", "--name", "server", "--", sys.executable)

    assert (ended.exit_code, ended.stdout.rpartition("\n")[0].rpartition("\n")[2]) == ends_with
    assert ("server is away" in ended.stderr) == (ended.exit_code == 2)
