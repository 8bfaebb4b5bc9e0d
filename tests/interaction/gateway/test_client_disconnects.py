"""A disconnect of the client cancels its call, or does not."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness, running_gateway
from tests.support.application import SECRET
from tests.support.engine import wait_until
from tests.support.mcp_wire import TASKS_DECLARED, Json, ModernClient
from tests.support.upstreams import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R13")

OWN_LOGGER_PREFIX: Final[Json] = {"ringback/correlationId": "mine"}


async def disconnect_during_call(
    gate: GatewayHarness,
    client: ModernClient,
    session_id: str,
    *,
    declare: Json = NO_CAPABILITIES,
    meta: Json | None = None,
) -> None:
    """Call `wait`, and disconnect while it is held."""
    params: Json = {"name": "wait", "arguments": {}, "_meta": {"client_session_id": session_id, **(meta or {})}}
    waiting = asyncio.create_task(client.request("tools/call", params, declare=declare))
    await gate.interop.wait_until_held()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def wait_for_end(gate: GatewayHarness, session_id: str) -> Json:
    (call,) = await gate.list_calls(session_id)
    return await gate.wait_until_ended(call["id"])


async def test_closing_a_modern_stream_cancels_the_call(gate: GatewayHarness, modern: ModernClient) -> None:
    await disconnect_during_call(gate, modern, "closed")
    await asyncio.wait_for(gate.interop.let_go.wait(), WAIT_SECONDS)
    assert (await wait_for_end(gate, "closed"))["status"] == "cancelled"


@pytest.mark.parametrize(
    ("name", "declare", "meta"), [("tasks", TASKS_DECLARED, {}), ("ours", NO_CAPABILITIES, OWN_LOGGER_PREFIX)]
)
async def test_a_disconnect_of_a_client_with_tasks_or_ringback_keys_cancels_nothing(
    gate: GatewayHarness, modern: ModernClient, name: str, declare: Json, meta: Json
) -> None:
    await disconnect_during_call(gate, modern, name, declare=declare, meta=meta)
    gate.interop.release.set()
    assert (await wait_for_end(gate, name))["outcome"] == "result"


async def test_the_operator_can_keep_every_call_on_disconnect(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, disconnect="keep") as gate:
        await disconnect_during_call(gate, await gate.make_modern_client(), "kept")
        gate.interop.release.set()
        assert (await wait_for_end(gate, "kept"))["outcome"] == "result"


async def test_a_disconnected_client_counts_as_not_answered_inline(gate: GatewayHarness, modern: ModernClient) -> None:
    callback: Json = {"ringback/callback": {"url": gate.callback_receiver.url, "secret": SECRET}}
    await disconnect_during_call(gate, modern, "left", meta={**callback, "ringback/correlationId": "left-1"})
    async with gate.open_legacy_session() as session:
        meta: Json = {**callback, "ringback/correlationId": "left-2", "client_session_id": "left-too"}
        async with session.open_request("tools/call", {"name": "wait", "arguments": {}, "_meta": meta}):
            await gate.interop.wait_until_held()
    await wait_until_disconnect_noticed(gate, "left")
    await wait_until_disconnect_noticed(gate, "left-too")
    gate.interop.release.set()
    for correlation_id in ("left-1", "left-2"):
        assert (await gate.callback_receiver.wait_for_callback(correlation_id)).data["answered_inline"] is False


async def wait_until_disconnect_noticed(gate: GatewayHarness, session_id: str) -> None:
    (call,) = await gate.list_calls(session_id)

    async def is_unattended() -> bool:
        stored = await gate.ringback.app.store.read(lambda tx: tx.calls.get(call["id"]))
        return stored is not None and stored.attended_until is None

    await wait_until(is_unattended)


async def test_a_cancelled_legacy_request_cancels_its_call(gate: GatewayHarness) -> None:
    async with gate.open_legacy_session() as session:
        params: Json = {"name": "wait", "arguments": {}, "_meta": {"client_session_id": "esc"}}
        async with session.open_request("tools/call", params):
            await gate.interop.wait_until_held()
            await session.cancel_request(session.last_id)
            await asyncio.wait_for(gate.interop.let_go.wait(), WAIT_SECONDS)
    assert (await wait_for_end(gate, "esc"))["status"] == "cancelled"


async def test_a_lost_legacy_connection_cancels_nothing(gate: GatewayHarness) -> None:
    async with gate.open_legacy_session() as session:
        params: Json = {"name": "wait", "arguments": {}, "_meta": {"client_session_id": "lost"}}
        async with session.open_request("tools/call", params):
            await gate.interop.wait_until_held()
    gate.interop.release.set()
    assert (await wait_for_end(gate, "lost"))["outcome"] == "result"


async def test_another_sessions_cancellation_cancels_nothing(gate: GatewayHarness) -> None:
    async with gate.open_legacy_session() as session, gate.open_legacy_session() as other:
        params: Json = {"name": "wait", "arguments": {}, "_meta": {"client_session_id": "others"}}
        async with session.open_request("tools/call", params) as frames:
            await gate.interop.wait_until_held()
            await other.cancel_request(session.last_id)
            gate.interop.release.set()
            assert (await frames.read_response())["content"][0]["text"] == "held"


async def test_after_a_pending_result_only_an_explicit_cancellation_cancels_the_call(gate: GatewayHarness) -> None:
    async with gate.open_legacy_session() as session:
        async with session.open_request("tools/call", {"name": "hold", "arguments": {}}) as frames:
            pending = await frames.read_response()
        await session.cancel_request(session.last_id)
        call_id = pending["_meta"]["ringback/callId"]
        assert (await gate.request_rest("GET", f"/v1/calls/{call_id}")).json()["cancel_requested"] is False
        await gate.request_rest("POST", f"/v1/calls/{call_id}/cancel")
        assert (await gate.wait_until_ended(call_id))["status"] == "cancelled"
