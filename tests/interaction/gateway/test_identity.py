"""`_meta`: what a client says of a call comes back wherever it is spoken of; what is between neighbours stays there."""

import asyncio
from typing import Any

import pytest

from tests.interaction.gateway.conftest import NO_CAPABILITIES, Gate
from tests.support.application import SECRET
from tests.support.mcp_wire import Json, Modern, Refused, Session

NAMES = {"ringback/clientSessionId": "session-7", "ringback/correlationId": "report-1"}
FALLBACKS = [
    ({"client_session_id": "s-1", "traceparent": "00-trace"}, ("s-1", "00-trace")),
    ({"openai/session": "s-2"}, ("s-2", None)),
    ({"ringback/clientSessionId": "ours", "client_session_id": "theirs"}, ("ours", None)),
    ({"client_session_id": 7, "openai/session": "s-3", "traceparent": ""}, ("s-3", None)),
]


async def called(client: Modern | Session, name: str, meta: Json, **arguments: Any) -> Json:
    declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, Modern) else {}
    return await client.result("tools/call", {"name": name, "arguments": arguments, "_meta": meta}, **declare)


@pytest.mark.requirement("R19")
async def test_the_names_come_back_on_results_pending_results_and_their_resource(
    gate: Gate, modern: Modern, session: Session
) -> None:
    for client in (modern, session):
        result = await called(client, "widget", NAMES)
        assert NAMES.items() <= result["_meta"].items()
        pending = await called(client, "hold", NAMES)
        assert NAMES.items() <= pending["_meta"].items()
        read = await client.result("resources/read", {"uri": pending["content"][1]["uri"]})
        assert NAMES.items() <= read["contents"][0]["_meta"].items()
    gate.paint.release.set()


@pytest.mark.requirement("R19")
@pytest.mark.parametrize(("meta", "expected"), FALLBACKS)
async def test_names_that_other_clients_use_are_taken_too(
    gate: Gate, modern: Modern, meta: Json, expected: tuple[str, str | None]
) -> None:
    result = await called(modern, "count", meta)
    call = (await gate.rest("GET", f"/v1/calls/{result['_meta']['ringback/callId']}")).json()
    assert (call["client_session_id"], call["correlation_id"]) == expected


@pytest.mark.parametrize("value", [7, "", "x" * 257, ["session"]])
async def test_a_name_of_ours_that_is_none_is_refused(modern: Modern, session: Session, value: Any) -> None:
    for client in (modern, session):
        with pytest.raises(Refused) as refused:
            await called(client, "count", {"ringback/clientSessionId": value})
        assert refused.value.code == -32602
        assert "ringback/clientSessionId" in refused.value.message


async def test_other_keys_go_upstream_and_those_between_neighbours_do_not(
    gate: Gate, modern: Modern, session: Session
) -> None:
    theirs = {"acme/tenant": "t-1", "traceparent": "00-trace"}
    ours = {"ringback/correlationId": "c-1", "progressToken": "p-1"}
    reserved = {"io.modelcontextprotocol/related-task": {"taskId": "x"}}
    for client in (modern, session):
        gate.paint.seen_meta.clear()
        await called(client, "count", {**theirs, **ours, **reserved})
        (seen,) = gate.paint.seen_meta
        assert theirs.items() <= seen.items()
        assert not [key for key in seen if key.startswith("ringback/") or key in reserved]
        assert seen.get("progress_token") != "p-1"


async def test_the_same_idempotency_key_is_the_same_call(gate: Gate, modern: Modern, session: Session) -> None:
    answers = [
        await called(client, "count", {"ringback/idempotencyKey": "once"}) for client in (modern, session, modern)
    ]
    assert len({answer["_meta"]["ringback/callId"] for answer in answers}) == 1
    assert len(gate.paint.seen_meta) == 1
    with pytest.raises(Refused) as refused:
        await called(modern, "count", {"ringback/idempotencyKey": "once"}, other=1)
    assert refused.value.data["problem"] == "idempotency-conflict"


@pytest.mark.requirement("R16")
@pytest.mark.requirement("R18")
async def test_a_callback_rings_for_this_one_call(gate: Gate, modern: Modern) -> None:
    callback = {"url": gate.phone.url, "secret": SECRET, "correlation_id": "inbox", "include_result": True}
    pending = await called(modern, "hold", {"ringback/callback": callback, "ringback/correlationId": "rung-1"})
    gate.paint.release.set()

    rung = await gate.phone.ring("rung-1")

    call_id = pending["_meta"]["ringback/callId"]
    assert (rung.name, rung.call_id, rung.status) == ("call.finished", call_id, "completed")
    assert rung.data["webhook_correlation_id"] == "inbox"
    assert rung.data["resource_uri"] == f"ringback://calls/{call_id}"
    assert rung.data["mcp_url"].endswith("/mcp")
    assert rung.data["answered_inline"] is False
    assert rung.data["result"]["content"][0]["text"] == "held"


async def test_a_callback_tells_when_the_client_had_the_result_already(gate: Gate, modern: Modern) -> None:
    callback = {"url": gate.phone.url, "secret": SECRET}
    await called(modern, "count", {"ringback/callback": callback, "ringback/correlationId": "inline-1"})
    assert (await gate.phone.ring("inline-1")).data["answered_inline"] is True


@pytest.mark.parametrize(("wait_seconds", "inline"), [(30.0, True), (0.0, False)])
async def test_a_client_over_rest_is_answered_inline_if_it_waits(
    gate: Gate, wait_seconds: float, *, inline: bool
) -> None:
    body: Json = {
        "upstream": "paint",
        "tool": "count",
        "wait_seconds": wait_seconds,
        "correlation_id": f"rest-{wait_seconds}",
        "callback": {"url": gate.phone.url, "secret": SECRET},
    }
    await gate.rest("POST", "/v1/calls", json=body)
    assert (await gate.phone.ring(f"rest-{wait_seconds}")).data["answered_inline"] is inline


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
async def test_a_callback_is_judged_as_over_rest(modern: Modern, callback: Any, about: str) -> None:
    with pytest.raises(Refused) as refused:
        await called(modern, "count", {"ringback/callback": callback})
    assert refused.value.code == -32602
    assert about in refused.value.message
    assert "whsec_short" not in refused.value.message


async def test_a_callback_is_neither_stored_nor_forwarded(gate: Gate, modern: Modern) -> None:
    secret = "whsec_" + "QUJD" * 8
    callback = {"url": gate.phone.url, "secret": secret}
    await called(modern, "count", {"ringback/callback": callback})
    assert "ringback/callback" not in gate.paint.seen_meta[-1]
    database = gate.folder / "ringback.db"
    assert secret.encode() not in await asyncio.to_thread(database.read_bytes)
