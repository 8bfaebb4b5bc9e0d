"""An MCP endpoint whose session manager fails: its requests are answered, the others do not notice, and it comes back."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.mcp_server import endpoints, keeping
from ringback.mcp_server.sessions import BoundedSessionManager
from tests.interaction.gateway.conftest import Gate, opened_gate
from tests.interaction.gateway_hostile.connections import raw
from tests.interaction.gateway_hostile.test_idle_streams import ACKNOWLEDGED, greeted, listening, to_listen
from tests.support.engine import until
from tests.support.mcp_wire import LEGACY, MODERN
from tests.support.upstreams import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R25")

HOUR: Final = 3600.0
LIST: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@dataclass(slots=True)
class Managers:
    """Every session manager that was made, and how many of the next ones fail to start."""

    made: list["Fragile"] = field(default_factory=list["Fragile"])
    failing_starts: int = 0


class Fragile(BoundedSessionManager):
    managers: Managers

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

    def die(self) -> None:
        async def fail() -> None:
            raise RuntimeError("a session failed in a way that nobody foresaw")

        assert self._task_group is not None
        self._task_group.start_soon(fail)


@pytest.fixture
def managers(monkeypatch: pytest.MonkeyPatch) -> Managers:
    """An endpoint that failed stays down, unless the test says otherwise."""
    Fragile.managers = Managers()
    monkeypatch.setattr(endpoints, "Sessions", Fragile)
    monkeypatch.setattr(keeping, "PAUSE_SECONDS_MIN", HOUR)
    return Fragile.managers


@pytest.fixture
async def gate(tmp_path: Path, managers: Managers) -> AsyncGenerator[Gate]:
    async with opened_gate(tmp_path) as gate:
        yield gate


async def asked_for_tools(gate: Gate, name: str, version: str = MODERN) -> tuple[int, str]:
    headers = {
        "authorization": f"Bearer {await gate.key('ida')}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        "mcp-method": "tools/list",
    }
    answer = await asyncio.wait_for(gate.http.post(f"{gate.url}/mcp/{name}", json=LIST, headers=headers), WAIT_SECONDS)
    return answer.status_code, answer.text


def failures(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage() == "mcp.endpoint_failed"]


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_requests_to_an_endpoint_that_fails_to_start_are_refused_in_words(
    gate: Gate, managers: Managers, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    managers.failing_starts = 1
    answers = [
        *await asyncio.gather(*(asked_for_tools(gate, "paint", version) for _ in range(3))),
        await asked_for_tools(gate, "paint", version),
    ]
    assert [status for status, _ in answers] == [503] * 4
    assert all("/problems/endpoint-unavailable" in text for _, text in answers)
    (failure,) = failures(caplog)
    assert failure.__dict__["endpoint"] == "/mcp/paint"
    assert failure.exc_info is not None
    ready = await gate.http.get(f"{gate.url}/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "degraded": ["/mcp/paint"]})
    client = await gate.modern("library", principal="ida")
    assert "tools" in await client.result("tools/list", {})


async def test_an_endpoint_that_failed_is_started_again(
    gate: Gate, managers: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "PAUSE_SECONDS_MIN", 0.0)
    managers.failing_starts = 3
    await asked_for_tools(gate, "paint")

    async def back() -> bool:
        return not (await gate.http.get(f"{gate.url}/readyz")).json()["degraded"] and not managers.failing_starts

    await until(back)
    client = await gate.modern("paint", principal="ida")
    assert "tools" in await client.result("tools/list", {})
    assert len(managers.made) == 4


async def test_when_an_endpoint_dies_what_it_was_handling_ends_and_later_requests_are_refused(
    gate: Gate, managers: Managers, caplog: pytest.LogCaptureFixture
) -> None:
    key = await gate.key("ida")
    async with AsyncExitStack() as stack:
        neighbour = await stack.enter_async_context(gate.session("plain", principal="ida"))
        await listening(stack, gate, key)
        session = await greeted(gate, key)
        _, news = await stack.enter_async_context(raw(gate, *to_listen(key)))
        _, own = await stack.enter_async_context(raw(gate, "GET", session))
        await news.readuntil(ACKNOWLEDGED.encode())
        managers.made[1].die()
        for reader in (news, own):
            await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), WAIT_SECONDS)
        assert (await asked_for_tools(gate, "paint"))[0] == 503
        assert (await asked_for_tools(gate, "paint", LEGACY))[0] == 503
        assert "tools" in await neighbour.result("tools/list", {})
    assert len(failures(caplog)) == 1


async def test_an_unknown_name_makes_no_endpoint(gate: Gate, managers: Managers) -> None:
    for number in range(50):
        assert (await asked_for_tools(gate, f"unknown-{number}"))[0] == 404
    assert managers.made == []
