"""One principal's sessions of before 2026-07-28 are bounded, so that it cannot take those of the others."""

import math
from typing import Any, Final

import httpx
import pytest
from mcp.server import streamable_http_manager
from mcp.server.streamable_http import StreamableHTTPServerTransport

from ringback.mcp_server import sessions
from tests.interaction.gateway.conftest import Gate
from tests.support.engine import until
from tests.support.mcp_wire import ACCEPT, LEGACY, Json

pytestmark = pytest.mark.requirement("R25")

SESSIONS_MAX: Final = 2
GREETING: Final[Json] = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "many", "version": "1"}}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_OF_PRINCIPAL_MAX", SESSIONS_MAX)


async def greet(
    gate: Gate, principal: str, params: Json = GREETING, *, path: str = "/mcp/paint", method: str = "initialize"
) -> httpx.Response:
    headers = {"authorization": f"Bearer {await gate.key(principal)}", **ACCEPT}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await gate.http.post(f"{gate.url}{path}", json=body, headers=headers)


async def end(gate: Gate, principal: str, opened: httpx.Response) -> int:
    headers = {
        "authorization": f"Bearer {await gate.key(principal)}",
        "mcp-session-id": opened.headers["mcp-session-id"],
        "mcp-protocol-version": LEGACY,
    }
    return (await gate.http.delete(str(opened.url), headers=headers)).status_code


async def test_who_has_opened_too_many_is_told_what_to_do_and_the_others_are_served(gate: Gate) -> None:
    opened = [await greet(gate, "hoarder") for _ in range(SESSIONS_MAX)]
    assert [answer.status_code for answer in opened] == [200] * SESSIONS_MAX
    refused = await greet(gate, "hoarder")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
    problem = refused.json()
    assert (problem["quota"], problem["limit"]) == ("sessions", SESSIONS_MAX)
    assert "DELETE with its Mcp-Session-Id" in problem["detail"]
    assert "30 minutes" in problem["detail"]

    elsewhere, other = await greet(gate, "hoarder", path="/mcp/plain"), await greet(gate, "modest")
    assert (elsewhere.status_code, other.status_code) == (200, 200)
    assert "tools" in await (await gate.modern(principal="hoarder")).result("tools/list", {})

    assert await end(gate, "hoarder", opened[0]) == 200
    again = await greet(gate, "hoarder")
    assert again.status_code == 200
    assert (await greet(gate, "hoarder")).status_code == 429
    for principal, answer in (("hoarder", opened[1]), ("hoarder", again), ("hoarder", elsewhere), ("modest", other)):
        assert await end(gate, principal, answer) == 200


async def test_what_opens_no_session_is_not_counted(gate: Gate) -> None:
    for _ in range(SESSIONS_MAX + 1):
        assert (await greet(gate, "clumsy", method="tools/list")).status_code == 400
    opened = await greet(gate, "clumsy")
    assert opened.status_code == 200
    assert await end(gate, "clumsy", opened) == 200


async def test_sessions_that_were_idle_for_too_long_are_not_counted(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    transports: list[StreamableHTTPServerTransport] = []

    class Seen(StreamableHTTPServerTransport):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            transports.append(self)

    monkeypatch.setattr(streamable_http_manager, "StreamableHTTPServerTransport", Seen)
    for _ in range(SESSIONS_MAX):
        await greet(gate, "forgetful")
    assert (await greet(gate, "forgetful")).status_code == 429
    for transport in transports:
        assert transport.idle_scope is not None
        transport.idle_scope.deadline = -math.inf

    async def room_again() -> bool:
        answer = await greet(gate, "forgetful")
        return answer.status_code == 200 and await end(gate, "forgetful", answer) == 200

    await until(room_again)
