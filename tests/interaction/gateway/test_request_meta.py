"""A client's labels in `_meta` are returned on every message about the call; reserved keys are not forwarded."""

import asyncio
from typing import Any, Final

import pytest

from ringback.mcp_server.tool_export import PENDING_KEY
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness
from tests.support.application import SECRET
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, LegacyClientSession, ModernClient

UPSTREAMS: Final = ("paint",)

NAMES = {"ringback/clientSessionId": "session-7", "ringback/correlationId": "report-1"}
FALLBACK_NAMES = [
    ({"client_session_id": "s-1", "traceparent": "00-trace"}, ("s-1", "00-trace")),
    ({"openai/session": "s-2"}, ("s-2", None)),
    ({"ringback/clientSessionId": "ours", "client_session_id": "theirs"}, ("ours", None)),
    ({"client_session_id": 7, "openai/session": "s-3", "traceparent": ""}, ("s-3", None)),
]


async def call_with_meta(client: ModernClient | LegacyClientSession, name: str, meta: Json, **arguments: Any) -> Json:
    declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, ModernClient) else {}
    return await client.request("tools/call", {"name": name, "arguments": arguments, "_meta": meta}, **declare)


@pytest.mark.requirement("R19")
async def test_the_labels_are_returned_on_results_pending_results_and_their_resource(
    gate: GatewayHarness, modern: ModernClient, session: LegacyClientSession
) -> None:
    for client in (modern, session):
        result = await call_with_meta(client, "widget", NAMES)
        assert NAMES.items() <= result["_meta"].items()
        pending = await call_with_meta(client, "hold", NAMES)
        assert NAMES.items() <= pending["_meta"].items()
        shown = pending["structuredContent"][PENDING_KEY]
        assert (shown["client_session_id"], shown["correlation_id"]) == ("session-7", "report-1")
        assert "client_session_id session-7, correlation_id report-1" in pending["content"][0]["text"]
        read = await client.request("resources/read", {"uri": shown["resource_uri"]})
        assert NAMES.items() <= read["contents"][0]["_meta"].items()
    gate.interop.release.set()


@pytest.mark.requirement("R19")
@pytest.mark.parametrize(("meta", "expected"), FALLBACK_NAMES)
async def test_labels_under_the_keys_of_other_clients_are_read(
    gate: GatewayHarness, modern: ModernClient, meta: Json, expected: tuple[str, str | None]
) -> None:
    result = await call_with_meta(modern, "count", meta)
    call = (await gate.request_rest("GET", f"/v1/calls/{result['_meta']['ringback/callId']}")).json()
    assert (call["client_session_id"], call["correlation_id"]) == expected


@pytest.mark.parametrize("value", [7, "", "x" * 257, ["session"]])
async def test_an_invalid_label_under_a_ringback_key_is_refused(
    modern: ModernClient, session: LegacyClientSession, value: Any
) -> None:
    for client in (modern, session):
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await call_with_meta(client, "count", {"ringback/clientSessionId": value})
        assert refused.value.code == -32602
        assert "ringback/clientSessionId" in refused.value.message


async def test_other_meta_keys_go_upstream_and_hop_by_hop_keys_do_not(
    gate: GatewayHarness, modern: ModernClient, session: LegacyClientSession
) -> None:
    theirs = {"acme/tenant": "t-1", "traceparent": "00-trace"}
    ours = {"ringback/correlationId": "c-1", "progressToken": "p-1"}
    reserved = {"io.modelcontextprotocol/related-task": {"taskId": "x"}}
    for client in (modern, session):
        gate.interop.seen_meta.clear()
        await call_with_meta(client, "count", {**theirs, **ours, **reserved})
        (observed,) = gate.interop.seen_meta
        assert theirs.items() <= observed.items()
        assert not [key for key in observed if key.startswith("ringback/") or key in reserved]
        assert observed.get("progress_token") != "p-1"


async def test_the_same_idempotency_key_is_the_same_call(
    gate: GatewayHarness, modern: ModernClient, session: LegacyClientSession
) -> None:
    answers = [
        await call_with_meta(client, "count", {"ringback/idempotencyKey": "once"})
        for client in (modern, session, modern)
    ]
    assert len({answer["_meta"]["ringback/callId"] for answer in answers}) == 1
    assert len(gate.interop.seen_meta) == 1
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await call_with_meta(modern, "count", {"ringback/idempotencyKey": "once"}, other=1)
    assert refused.value.data["problem"] == "idempotency-conflict"


@pytest.mark.requirement("R16")
@pytest.mark.requirement("R18")
async def test_a_callback_of_a_call_covers_this_call_only(gate: GatewayHarness, modern: ModernClient) -> None:
    callback = {"url": gate.callback_receiver.url, "secret": SECRET, "correlation_id": "inbox", "include_result": True}
    pending = await call_with_meta(modern, "hold", {"ringback/callback": callback, "ringback/correlationId": "rung-1"})
    gate.interop.release.set()

    received = await gate.callback_receiver.wait_for_callback("rung-1")

    call_id = pending["_meta"]["ringback/callId"]
    assert (received.name, received.call_id, received.status) == ("call.finished", call_id, "completed")
    assert received.data["webhook_correlation_id"] == "inbox"
    assert received.data["resource_uri"] == f"ringback://calls/{call_id}"
    assert received.data["mcp_url"].endswith("/mcp")
    assert received.data["answered_inline"] is False
    assert received.data["result"]["content"][0]["text"] == "held"


async def test_a_callback_says_whether_the_client_already_has_the_result(
    gate: GatewayHarness, modern: ModernClient
) -> None:
    callback = {"url": gate.callback_receiver.url, "secret": SECRET}
    await call_with_meta(modern, "count", {"ringback/callback": callback, "ringback/correlationId": "inline-1"})
    assert (await gate.callback_receiver.wait_for_callback("inline-1")).data["answered_inline"] is True


@pytest.mark.parametrize(("wait_seconds", "inline"), [(30.0, True), (0.0, False)])
async def test_a_client_over_rest_is_answered_inline_if_it_waits(
    gate: GatewayHarness, wait_seconds: float, *, inline: bool
) -> None:
    body: Json = {
        "upstream": "paint",
        "tool": "count",
        "wait_seconds": wait_seconds,
        "correlation_id": f"rest-{wait_seconds}",
        "callback": {"url": gate.callback_receiver.url, "secret": SECRET},
    }
    await gate.request_rest("POST", "/v1/calls", json=body)
    assert (await gate.callback_receiver.wait_for_callback(f"rest-{wait_seconds}")).data["answered_inline"] is inline


@pytest.mark.parametrize(
    ("callback", "about"),
    [
        ("https://example.com", "ringback/callback"),
        ({}, "url"),
        ({"url": "http://example.com/x"}, "https"),
        ({"url": "https://10.0.0.1/x"}, "address"),
        ({"url": "https://example.com/x", "secret": "whsec_short"}, "secret"),
        ({"url": "https://example.com/x", "evnets": []}, "evnets"),
    ],
)
async def test_a_callback_is_validated_as_over_rest(modern: ModernClient, callback: Any, about: str) -> None:
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await call_with_meta(modern, "count", {"ringback/callback": callback})
    assert refused.value.code == -32602
    assert about in refused.value.message
    assert "whsec_short" not in refused.value.message


@pytest.mark.sqlite_only("reads SQLite's file")
async def test_a_callback_is_neither_stored_nor_forwarded(gate: GatewayHarness, modern: ModernClient) -> None:
    secret = "whsec_" + "QUJD" * 8
    callback = {"url": gate.callback_receiver.url, "secret": secret}
    await call_with_meta(modern, "count", {"ringback/callback": callback})
    assert "ringback/callback" not in gate.interop.seen_meta[-1]
    database = gate.folder / "ringback.db"
    assert secret.encode() not in await asyncio.to_thread(database.read_bytes)
