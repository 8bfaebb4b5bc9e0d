"""A disconnect of the client leaves its call, unless the operator decides otherwise; a cancellation cancels it."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import httpx
import pytest

from ringback.domain.upstreams import DisconnectAction
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness, running_gateway
from tests.support.application import SECRET
from tests.support.engine import wait_until
from tests.support.mcp_wire import TASKS_DECLARED, Json, JsonRpcErrorResponse, ModernClient
from tests.support.upstreams import WAIT_SECONDS

UPSTREAMS: Final = ("paint", "plain", "slow-paint")

pytestmark = pytest.mark.requirement("R13")

OWN_LOGGER_PREFIX: Final[Json] = {"ringback/correlationId": "mine"}


async def disconnect_during_call(
    gate: GatewayHarness,
    client: ModernClient,
    session_id: str,
    *,
    declare: Json = NO_CAPABILITIES,
    meta: Json | None = None,
    tool: str = "wait",
) -> None:
    """Call `wait`, and disconnect while it is held."""
    params: Json = {"name": tool, "arguments": {}, "_meta": {"client_session_id": session_id, **(meta or {})}}
    waiting = asyncio.create_task(client.request("tools/call", params, declare=declare))
    await gate.interop.wait_until_held()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def wait_for_end(gate: GatewayHarness, session_id: str) -> Json:
    (call,) = await gate.list_calls(session_id)
    return await gate.wait_until_ended(call["id"])


async def wait_until_kept(gate: GatewayHarness, session_id: str) -> None:
    """Wait until the disconnect is noticed, and then for the tool's own result."""
    await wait_until_disconnect_noticed(gate, session_id)
    gate.interop.release.set()
    assert (await wait_for_end(gate, session_id))["outcome"] == "result"


async def wait_until_cancelled(gate: GatewayHarness, session_id: str) -> None:
    """Wait until the upstream's tool is cancelled, and then for the end of the call."""
    await asyncio.wait_for(gate.interop.let_go.wait(), WAIT_SECONDS)
    assert (await wait_for_end(gate, session_id))["status"] == "cancelled"


@pytest.mark.must("C01")
async def test_closing_a_modern_stream_ends_the_request_and_leaves_the_call(
    gate: GatewayHarness, modern: ModernClient
) -> None:
    await disconnect_during_call(gate, modern, "closed")
    await wait_until_kept(gate, "closed")


@pytest.mark.parametrize("request_id", [7, "a", "long" * 100])
async def test_a_request_with_the_id_of_one_that_waits_starts_nothing(
    gate: GatewayHarness, request_id: int | str
) -> None:
    """A session of the SDK keeps streams by id: the later request would get the response of the earlier one."""
    again: Json = {"name": "count", "arguments": {}, "_meta": {"client_session_id": "again"}}
    async with gate.open_legacy_session() as session:

        async def send(params: Json) -> httpx.Response:
            message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
            return await session.http.post(session.url, json=message, headers=session.headers)

        waiting = asyncio.create_task(send({"name": "wait", "arguments": {}}))
        await gate.interop.wait_until_held()
        refused = await send(again)
        gate.interop.release.set()
        response = await asyncio.wait_for(waiting, WAIT_SECONDS)

    assert (refused.status_code, refused.json()["error"]["code"]) == (409, -32009)
    assert refused.json()["id"] == request_id
    assert '"isError":false' in response.text
    assert await gate.list_calls("again") == []


@pytest.fixture(scope="module")
async def shared_cancelling_gate(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[GatewayHarness]:
    """A gateway where a disconnect cancels the call, except for the calls of `slow-paint` to `wait`."""
    upstreams: Json = {
        "slow-paint": {"tool_on_disconnect": {"wait": DisconnectAction.KEEP}, "inline_wait_seconds": None},
    }
    async with running_gateway(
        module_path_factory.mktemp("gate"),
        only={"paint", "slow-paint"},
        on_disconnect=DisconnectAction.CANCEL,
        upstreams=upstreams,
    ) as gate:
        yield gate


@pytest.fixture
def cancelling_gate(shared_cancelling_gate: GatewayHarness) -> GatewayHarness:
    shared_cancelling_gate.interop.reset()
    return shared_cancelling_gate


@pytest.mark.must("C01")
async def test_the_operator_can_have_a_disconnect_cancel_the_call(cancelling_gate: GatewayHarness) -> None:
    await disconnect_during_call(cancelling_gate, await cancelling_gate.make_modern_client(), "closed")
    await wait_until_cancelled(cancelling_gate, "closed")


@pytest.mark.parametrize(
    ("name", "declare", "meta"), [("tasks", TASKS_DECLARED, {}), ("ours", NO_CAPABILITIES, OWN_LOGGER_PREFIX)]
)
async def test_not_even_then_the_call_of_a_client_with_tasks_or_ringback_keys(
    cancelling_gate: GatewayHarness, name: str, declare: Json, meta: Json
) -> None:
    client = await cancelling_gate.make_modern_client()
    await disconnect_during_call(cancelling_gate, client, name, declare=declare, meta=meta)
    await wait_until_kept(cancelling_gate, name)


async def test_nor_the_call_of_a_client_with_an_option_in_its_url(cancelling_gate: GatewayHarness) -> None:
    key = await cancelling_gate.get_api_key("alice")
    client = ModernClient(cancelling_gate.http, f"{cancelling_gate.url}/mcp/paint?correlation_id=mine", key)
    await disconnect_during_call(cancelling_gate, client, "by-url")
    await wait_until_kept(cancelling_gate, "by-url")


async def test_a_tool_overrides_its_upstream_and_the_service(cancelling_gate: GatewayHarness) -> None:
    await disconnect_during_call(cancelling_gate, await cancelling_gate.make_modern_client("slow-paint"), "tool")
    await wait_until_kept(cancelling_gate, "tool")


@pytest.mark.parametrize(
    "configured",
    [
        {"on_disconnect": DisconnectAction.CANCEL},
        {"on_disconnect": DisconnectAction.KEEP, "tool_on_disconnect": {"wait": DisconnectAction.CANCEL}},
    ],
    ids=["upstream", "tool"],
)
async def test_an_upstream_and_a_tool_can_have_a_disconnect_cancel_their_calls(
    tmp_path: Path, configured: Json
) -> None:
    async with running_gateway(tmp_path, only={"paint"}, upstreams={"paint": configured}) as gate:
        await disconnect_during_call(gate, await gate.make_modern_client(None), "joined", tool="paint__wait")
        await wait_until_cancelled(gate, "joined")


# -- an explicit cancellation of a modern request -----------------------------------------------------------------------------


async def cancel_by_key(client: ModernClient, key: str) -> Json:
    return await client.request("ringback/cancelRequest", {}, headers={"Ringback-Cancel-Key": key})


def call_with_key(client: ModernClient, session_id: str, key: str) -> "asyncio.Task[Json]":
    params: Json = {"name": "wait", "arguments": {}, "_meta": {"client_session_id": session_id}}
    return asyncio.create_task(
        client.request("tools/call", params, declare=NO_CAPABILITIES, headers={"Ringback-Cancel-Key": key})
    )


async def test_a_modern_client_cancels_a_waiting_request_by_its_key(gate: GatewayHarness, modern: ModernClient) -> None:
    waiting = call_with_key(modern, "by-key", "key-1")
    await gate.interop.wait_until_held()
    assert (await cancel_by_key(modern, "key-1"))["resultType"] == "complete"
    with pytest.raises(JsonRpcErrorResponse, match="cancelled"):
        await waiting
    await wait_until_cancelled(gate, "by-key")


async def test_a_request_whose_client_has_left_can_still_be_cancelled(
    gate: GatewayHarness, modern: ModernClient
) -> None:
    waiting = call_with_key(modern, "left-by-key", "key-2")
    await gate.interop.wait_until_held()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await wait_until_disconnect_noticed(gate, "left-by-key")
    await cancel_by_key(modern, "key-2")
    await wait_until_cancelled(gate, "left-by-key")


async def test_a_cancellation_that_overtakes_its_request_cancels_the_call(
    gate: GatewayHarness, modern: ModernClient
) -> None:
    await cancel_by_key(modern, "key-3")
    with pytest.raises(JsonRpcErrorResponse, match="cancelled"):
        await call_with_key(modern, "overtaken", "key-3")
    assert (await wait_for_end(gate, "overtaken"))["status"] == "cancelled"


async def test_a_legacy_cancellation_that_overtakes_its_request_keeps_the_tool_from_running(
    gate: GatewayHarness,
) -> None:
    """`ringback mcp` relies on it: a request whose connection was lost and that its client has cancelled is sent like this."""
    async with gate.open_legacy_session() as session:
        await session.cancel_request(session.last_id + 1)
        with pytest.raises(JsonRpcErrorResponse, match="cancelled"):
            await session.request("tools/call", {"name": "wait", "_meta": {"client_session_id": "overtaken-legacy"}})
    ended = await wait_for_end(gate, "overtaken-legacy")
    assert (ended["status"], ended["runs"]) == ("cancelled", 0)


@pytest.mark.requirement("R25")
async def test_another_principals_and_another_requests_key_cancel_nothing(
    gate: GatewayHarness, modern: ModernClient
) -> None:
    waiting = call_with_key(modern, "held-by-key", "key-4")
    await gate.interop.wait_until_held()
    await cancel_by_key(await gate.make_modern_client(principal="bob"), "key-4")
    await cancel_by_key(modern, "key-5")
    gate.interop.release.set()
    assert (await waiting)["content"][0]["text"] == "held"


async def test_a_cancellation_without_a_usable_key_is_refused(modern: ModernClient) -> None:
    for headers in ({}, {"Ringback-Cancel-Key": "k" * 65}):
        with pytest.raises(JsonRpcErrorResponse, match="Ringback-Cancel-Key") as refused:
            await modern.request("ringback/cancelRequest", {}, headers=headers)
        assert refused.value.code == -32602


async def test_a_legacy_session_cancels_with_its_notification_only(gate: GatewayHarness) -> None:
    async with gate.open_legacy_session() as session:
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await session.request("ringback/cancelRequest", {})
    assert refused.value.code == -32601


# -- disconnects of both eras -------------------------------------------------------------------------------------------------


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
