"""The legacy sessions of one principal are limited, so that others can open theirs."""

from typing import Final

import httpx
import pytest

from ringback.services import mcp_sessions
from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway_hostile.conftest import let_sessions_become_idle
from tests.support.engine import wait_until
from tests.support.mcp_wire import ACCEPT, LEGACY, Json, JsonRpcErrorResponse

UPSTREAMS: Final = ("paint", "plain")

pytestmark = pytest.mark.requirement("R25")

SESSIONS_MAX: Final = 2
INITIALIZE_PARAMS: Final[Json] = {
    "protocolVersion": LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "many", "version": "1"},
}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_sessions, "SESSIONS_PER_PRINCIPAL_MAX", SESSIONS_MAX)


async def initialize_session(
    gate: GatewayHarness,
    principal: str,
    params: Json = INITIALIZE_PARAMS,
    *,
    path: str = "/mcp/paint",
    method: str = "initialize",
) -> httpx.Response:
    headers = {"authorization": f"Bearer {await gate.get_api_key(principal)}", **ACCEPT}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await gate.http.post(f"{gate.url}{path}", json=body, headers=headers)


async def end_session(gate: GatewayHarness, principal: str, opened: httpx.Response) -> int:
    headers = {
        "authorization": f"Bearer {await gate.get_api_key(principal)}",
        "mcp-session-id": opened.headers["mcp-session-id"],
        "mcp-protocol-version": LEGACY,
    }
    return (await gate.http.delete(str(opened.url), headers=headers)).status_code


async def test_a_principal_with_too_many_sessions_gets_advice_and_others_are_served(gate: GatewayHarness) -> None:
    opened = [await initialize_session(gate, "hoarder") for _ in range(SESSIONS_MAX)]
    assert [answer.status_code for answer in opened] == [200] * SESSIONS_MAX
    refused = await initialize_session(gate, "hoarder")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
    error = refused.json()["error"]
    assert (error["data"]["quota"], error["data"]["limit"]) == ("sessions", SESSIONS_MAX)
    assert "DELETE with their Mcp-Session-Id" in error["message"]
    assert "idle for 60 seconds" in error["message"]

    elsewhere, other = (
        await initialize_session(gate, "hoarder", path="/mcp/plain"),
        await initialize_session(gate, "modest"),
    )
    assert (elsewhere.status_code, other.status_code) == (200, 200)
    assert "tools" in await (await gate.make_modern_client(principal="hoarder")).request("tools/list", {})

    assert await end_session(gate, "hoarder", opened[0]) == 200
    again = await initialize_session(gate, "hoarder")
    assert again.status_code == 200
    assert (await initialize_session(gate, "hoarder")).status_code == 429
    for principal, answer in (("hoarder", opened[1]), ("hoarder", again), ("hoarder", elsewhere), ("modest", other)):
        assert await end_session(gate, principal, answer) == 200


async def test_requests_that_open_no_session_are_not_counted(gate: GatewayHarness) -> None:
    for _ in range(SESSIONS_MAX + 1):
        assert (await initialize_session(gate, "clumsy", method="tools/list")).status_code == 400
    opened = await initialize_session(gate, "clumsy")
    assert opened.status_code == 200
    assert await end_session(gate, "clumsy", opened) == 200


async def test_an_initialize_that_fails_leaves_no_session(gate: GatewayHarness) -> None:
    refused = await initialize_session(gate, "mistaken", {"protocolVersion": LEGACY})
    session_id = refused.headers["mcp-session-id"]
    headers = {"authorization": f"Bearer {await gate.get_api_key('mistaken')}", **ACCEPT, "mcp-session-id": session_id}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert "params.capabilities" in refused.text
    assert (await gate.http.post(str(refused.url), json=body, headers=headers)).status_code == 404


async def test_an_initialize_that_fails_in_a_session_leaves_the_session(gate: GatewayHarness) -> None:
    async with gate.open_legacy_session() as session:
        with pytest.raises(JsonRpcErrorResponse, match=r"params\.capabilities"):
            await session.request("initialize", {"protocolVersion": LEGACY})
        assert await session.request("tools/list", {})


async def test_sessions_that_were_idle_for_too_long_are_not_counted(gate: GatewayHarness) -> None:
    for _ in range(SESSIONS_MAX):
        await initialize_session(gate, "forgetful")
    assert (await initialize_session(gate, "forgetful")).status_code == 429
    await let_sessions_become_idle(gate)

    async def room_again() -> bool:
        answer = await initialize_session(gate, "forgetful")
        return answer.status_code == 200 and await end_session(gate, "forgetful", answer) == 200

    await wait_until(room_again)
