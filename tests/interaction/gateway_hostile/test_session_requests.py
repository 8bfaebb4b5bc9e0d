"""The requests of a principal's sessions are limited while they are handled, also those whose clients have left."""

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Final

import pytest

from ringback.services.limits import quotas
from tests.interaction.gateway.conftest import GatewayHarness
from tests.support.engine import wait_until
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, LegacyClientSession

UPSTREAMS: Final = ("paint", "plain")

pytestmark = pytest.mark.requirement("R25")

REQUESTS_MAX: Final = 3
HOLD: Final[Json] = {"name": "hold", "arguments": {}}


async def leave_waiting_request(gate: GatewayHarness, session: LegacyClientSession, request_id: int) -> None:
    """Send a request that waits for long, and leave once it is handled."""
    body: Json = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": HOLD}
    handled = gate.ringback.app.mcp._gateway.quotas._session_requests  # pyright: ignore[reportPrivateUsage]
    before = handled.total()
    request = asyncio.create_task(gate.http.post(f"{session.url}?wait=40", json=body, headers=session.headers))

    async def is_handled() -> bool:
        return handled.total() > before

    await wait_until(is_handled)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


async def test_requests_whose_clients_have_left_are_counted_until_they_are_handled(
    gate: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "SESSION_REQUESTS_MAX", REQUESTS_MAX)
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(gate.open_legacy_session(upstream, principal="mallory"))
            for upstream in ("paint", "plain")
        ]
        other = await stack.enter_async_context(gate.open_legacy_session(principal="bob"))
        for number in range(REQUESTS_MAX):
            await leave_waiting_request(gate, first, 100 + number)
        with pytest.raises(JsonRpcErrorResponse, match="also for clients that have left") as refused:
            await second.request("tools/list", {})
        assert (refused.value.data["quota"], refused.value.data["limit"]) == ("session_requests", REQUESTS_MAX)
        assert "tools" in await other.request("tools/list", {})
        client = await gate.make_modern_client(principal="mallory")
        assert "tools" in await client.request("tools/list", {})
        for number in range(REQUESTS_MAX):
            await first.cancel_request(100 + number)

        async def is_admitted() -> bool:
            with suppress(JsonRpcErrorResponse):
                return "tools" in await second.request("tools/list", {})
            return False

        await wait_until(is_admitted)
