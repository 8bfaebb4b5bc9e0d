"""An endpoint whose session manager fails answers its requests, restarts, and does not affect other endpoints."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.backoff import Backoff
from ringback.mcp_server import endpoint_supervisor, server
from ringback.mcp_server.session_manager import BoundedSessionManager
from tests.interaction.gateway.conftest import GatewayHarness, running_gateway
from tests.interaction.gateway_hostile.connections import open_raw_request
from tests.interaction.gateway_hostile.test_idle_streams import (
    ACKNOWLEDGED,
    initialize_session,
    listen_request,
    listening,
)
from tests.support.engine import wait_until
from tests.support.mcp_wire import LEGACY, MODERN
from tests.support.upstreams import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R25")

HOUR: Final = 3600.0
LIST: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@dataclass(slots=True)
class SessionManagers:
    """All created session managers, and how many of the next ones fail to start."""

    made: list["FailingSessionManager"] = field(default_factory=list["FailingSessionManager"])
    failing_starts: int = 0


class FailingSessionManager(BoundedSessionManager):
    managers: SessionManagers

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.managers.made.append(self)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        if self.managers.failing_starts:
            self.managers.failing_starts -= 1
            raise OSError("no room for another endpoint")
        async with super().run():
            yield

    def fail_manager(self) -> None:
        async def fail() -> None:
            raise RuntimeError("a session failed unexpectedly")

        assert self._task_group is not None
        self._task_group.start_soon(fail)


@pytest.fixture
def managers(monkeypatch: pytest.MonkeyPatch) -> SessionManagers:
    """A failed endpoint stays down, unless the test changes that."""
    FailingSessionManager.managers = SessionManagers()
    monkeypatch.setattr(server, "BoundedSessionManager", FailingSessionManager)
    monkeypatch.setattr(endpoint_supervisor, "RESTART_BACKOFF", Backoff(first_seconds=HOUR, longest_seconds=HOUR))
    return FailingSessionManager.managers


@pytest.fixture
async def gate(tmp_path: Path, managers: SessionManagers) -> AsyncGenerator[GatewayHarness]:
    async with running_gateway(tmp_path, only={"paint", "plain", "library"}) as gate:
        yield gate


async def list_tools(gate: GatewayHarness, name: str, version: str = MODERN) -> tuple[int, str]:
    headers = {
        "authorization": f"Bearer {await gate.get_api_key('ida')}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        "mcp-method": "tools/list",
    }
    answer = await asyncio.wait_for(gate.http.post(f"{gate.url}/mcp/{name}", json=LIST, headers=headers), WAIT_SECONDS)
    return answer.status_code, answer.text


def list_logged_failures(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage() == "mcp.endpoint_failed"]


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_requests_to_an_endpoint_that_fails_to_start_get_an_error(
    gate: GatewayHarness, managers: SessionManagers, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    managers.failing_starts = 1
    answers = [
        *await asyncio.gather(*(list_tools(gate, "paint", version) for _ in range(3))),
        await list_tools(gate, "paint", version),
    ]
    assert [status for status, _ in answers] == [503] * 4
    assert all('"problem":"endpoint-unavailable"' in text for _, text in answers)
    (failure,) = list_logged_failures(caplog)
    assert failure.__dict__["endpoint"] == "/mcp/paint"
    assert failure.exc_info is not None
    ready = await gate.http.get(f"{gate.url}/readyz")
    assert (ready.status_code, ready.json()["status"], ready.json()["degraded"]) == (200, "ready", ["/mcp/paint"])
    client = await gate.make_modern_client("library", principal="ida")
    assert "tools" in await client.request("tools/list", {})


async def test_a_failed_endpoint_restarts(
    gate: GatewayHarness, managers: SessionManagers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_supervisor, "RESTART_BACKOFF", Backoff(first_seconds=0.0, longest_seconds=60.0))
    managers.failing_starts = 3
    await list_tools(gate, "paint")

    async def back() -> bool:
        return not (await gate.http.get(f"{gate.url}/readyz")).json()["degraded"] and not managers.failing_starts

    await wait_until(back)
    client = await gate.make_modern_client("paint", principal="ida")
    assert "tools" in await client.request("tools/list", {})
    assert len(managers.made) == 4


async def test_when_an_endpoint_fails_its_requests_end_and_later_ones_are_refused(
    gate: GatewayHarness, managers: SessionManagers, caplog: pytest.LogCaptureFixture
) -> None:
    key = await gate.get_api_key("ida")
    async with AsyncExitStack() as stack:
        neighbour = await stack.enter_async_context(gate.open_legacy_session("plain", principal="ida"))
        await listening(stack, gate, key)
        session = await initialize_session(gate, key)
        _, news = await stack.enter_async_context(open_raw_request(gate, *listen_request(key)))
        _, own = await stack.enter_async_context(open_raw_request(gate, "GET", session))
        await news.readuntil(ACKNOWLEDGED.encode())
        managers.made[1].fail_manager()
        for reader in (news, own):
            await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), WAIT_SECONDS)
        assert (await list_tools(gate, "paint"))[0] == 503
        assert (await list_tools(gate, "paint", LEGACY))[0] == 503
        assert "tools" in await neighbour.request("tools/list", {})
        assert gate.ringback.app.mcp.live_sessions.count_places() == 1  # that of the neighbour
    assert len(list_logged_failures(caplog)) == 1


async def test_an_unknown_upstream_name_creates_no_endpoint(gate: GatewayHarness, managers: SessionManagers) -> None:
    for number in range(50):
        assert (await list_tools(gate, f"unknown-{number}"))[0] == 404
    assert managers.made == []
