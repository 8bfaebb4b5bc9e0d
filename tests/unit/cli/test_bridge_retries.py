"""Requests that `ringback mcp` sends again, and what its client gets when Ringback does not return."""

from typing import Any

import httpx2
import pytest

from ringback.cli.stdio_bridge.retries import FIRST_CONTACT_SECONDS, LOSSES_MAX, RECONNECT_SECONDS
from tests.support.bridge_stage import MODERN_META, BridgeStage, ScriptedStream, running_bridge

CALL: dict[str, Any] = {"name": "echo", "arguments": {"text": "hello"}}
RESET = httpx2.ReadError("reset")
ERAS = pytest.mark.parametrize("is_modern", [True, False], ids=["modern", "legacy"])


async def open_era(stage: BridgeStage, *, is_modern: bool) -> dict[str, Any]:
    """A tools/call of this era, after the handshake that it needs."""
    if is_modern:
        return CALL | MODERN_META
    await stage.begin_session()
    return CALL


@ERAS
async def test_a_request_that_did_not_arrive_is_sent_again(*, is_modern: bool) -> None:
    async with running_bridge() as stage:
        call = await open_era(stage, is_modern=is_modern)
        stage.service.script("tools/call", httpx2.ConnectError("refused"), {"content": []})
        response = await stage.request("tools/call", call)

    assert response["result"] == {"content": []}


@ERAS
@pytest.mark.parametrize("lost", ["before the response", "in the response"])
async def test_a_lost_call_is_sent_again_with_its_idempotency_key(*, is_modern: bool, lost: str) -> None:
    stream = ScriptedStream()
    stream.break_off()
    async with running_bridge() as stage:
        call = await open_era(stage, is_modern=is_modern)
        stage.service.script("tools/call", RESET if lost.startswith("before") else stream, {"content": []})
        response = await stage.request("tools/call", call, request_id="mine")
        first, second = stage.service.select("tools/call")

    assert (response["id"], response["result"]) == ("mine", {"content": []})
    assert first.idempotency_key == second.idempotency_key is not None
    assert second.message["params"] == first.message["params"]
    assert first.message["id"] == "mine"
    # A legacy session may still process the first request under its id.
    assert (second.message["id"] == "mine") is is_modern


async def test_a_stream_that_ends_without_a_response_is_a_lost_response() -> None:
    stream = ScriptedStream()
    stream.end()
    async with running_bridge() as stage:
        stage.service.script("resources/read", stream, {"contents": []})
        response = await stage.request("resources/read", {"uri": "a:b"} | MODERN_META)

    assert response["result"] == {"contents": []}


async def test_each_call_has_a_key_of_its_own_unless_the_client_set_one() -> None:
    own_key = {"_meta": {**MODERN_META["_meta"], "ringback/idempotencyKey": "client-1"}}
    async with running_bridge() as stage:
        for number, params in enumerate([CALL | MODERN_META, CALL | MODERN_META, CALL | own_key, CALL]):
            await stage.request("tools/call", params, request_id=number)
        keys = [each.idempotency_key for each in stage.service.select("tools/call")]

    assert len(set(keys)) == 4
    assert all(keys)
    assert keys[2] == "client-1"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        pytest.param("tools/call", CALL | MODERN_META | {"requestState": "sealed"}, id="the answer to a question"),
        pytest.param("tools/call", CALL | {"_meta": "odd"}, id="a _meta that is no object"),
        pytest.param("resources/read", {"uri": "a:b"} | MODERN_META, id="another method"),
    ],
)
async def test_other_params_are_not_changed(method: str, params: dict[str, Any]) -> None:
    async with running_bridge() as stage:
        await stage.request(method, params)
        (request,) = stage.service.select(method)

    assert request.message["params"] == params


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_request_is_sent_again_while_the_service_starts_behind_a_proxy(status: int) -> None:
    async with running_bridge() as stage:
        stage.service.script("tools/list", httpx2.Response(status, content=b"<html>"), {"tools": []})
        response = await stage.request("tools/list", MODERN_META)

    assert response["result"] == {"tools": []}


async def test_a_service_that_never_responded_is_reported_soon() -> None:
    async with running_bridge() as stage:
        stage.service.is_down = True
        response = await stage.request("initialize", {"protocolVersion": "2025-11-25"})
        waited_seconds = stage.clock.monotonic()

        again = await stage.request("initialize", {"protocolVersion": "2025-11-25"}, request_id=2)

        assert stage.clock.monotonic() == waited_seconds  # a client that tries the other era is not kept waiting again
    assert again["error"] == response["error"]
    assert "unreachable at http://127.0.0.1:8090/mcp" in response["error"]["message"]
    assert "Start Ringback with 'ringback serve'" in response["error"]["message"]
    assert FIRST_CONTACT_SECONDS <= waited_seconds <= FIRST_CONTACT_SECONDS + 1


async def test_a_service_that_does_not_return_is_reported_after_45_seconds() -> None:
    async with running_bridge() as stage:
        await stage.request("tools/list", MODERN_META)
        stage.service.is_down = True
        response = await stage.request("tools/call", CALL | MODERN_META, request_id=2)
        waited_seconds = stage.clock.monotonic()

    assert "The request was not sent." in response["error"]["message"]
    assert RECONNECT_SECONDS <= waited_seconds <= RECONNECT_SECONDS + 1


async def test_a_call_that_may_have_started_is_reported_with_the_key_that_starts_it_only_once() -> None:
    async with running_bridge() as stage:
        stage.service.script("tools/call", RESET)
        stage.service.script("tools/call", *[httpx2.ConnectError("refused")] * 100)
        response = await stage.request("tools/call", CALL | MODERN_META)
        key = stage.service.select("tools/call")[0].idempotency_key

    assert "may have been started" in response["error"]["message"]
    assert "ringback_list_calls" in response["error"]["message"]
    assert f"ringback/idempotencyKey '{key}'" in response["error"]["message"]


async def test_a_request_that_ends_the_service_each_time_is_given_up() -> None:
    async with running_bridge() as stage:
        stage.service.script("tools/call", *[RESET] * 100)
        response = await stage.request("tools/call", CALL | MODERN_META)

        assert len(stage.service.select("tools/call")) == LOSSES_MAX
    assert "may have been started" in response["error"]["message"]


async def test_responses_that_are_cut_off_after_a_long_time_do_not_count() -> None:
    streams = [ScriptedStream() for _ in range(LOSSES_MAX + 1)]
    async with running_bridge() as stage:
        stage.service.script("tasks/result", *streams)
        stage.send_request("tasks/result", {"taskId": "call_1"})
        for number, stream in enumerate(streams, start=1):
            await stage.service.wait_until(lambda number=number: len(stage.service.requests) == number)
            stage.clock.advance(60)
            stream.break_off()
        response = await stage.wait_for_response(1)

    assert response["result"] == {}


async def test_an_error_of_the_service_is_not_repeated() -> None:
    problem = {"type": "/problems/unauthenticated", "detail": "Send your API key.\x1b[2J"}
    async with running_bridge() as stage:
        stage.service.script("tools/list", httpx2.Response(401, json=problem))
        response = await stage.request("tools/list", MODERN_META)

        assert len(stage.service.requests) == 1
    assert response["error"]["message"] == "Send your API key.\N{REPLACEMENT CHARACTER}[2J"


async def test_progress_reaches_the_client_before_and_after_a_loss_and_only_increases() -> None:
    """The request that is sent again has the token of the first one."""
    first, second = ScriptedStream(), ScriptedStream()
    for stream, progress in ((first, 1), (first, 2), (second, 1.5), (second, 2), (second, 3)):
        stream.write_event(
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 7, "progress": progress}}
        )
    first.break_off()
    second.write_event({"jsonrpc": "2.0", "id": 1, "result": {"content": []}})
    async with running_bridge() as stage:
        stage.service.script("tools/call", first, second)
        await stage.request("tools/call", CALL | MODERN_META)

    assert [each["params"]["progress"] for each in stage.select("notifications/progress")] == [1, 2, 3]


async def test_a_reopened_subscription_reports_that_what_it_watches_may_have_changed() -> None:
    accepted = {"toolsListChanged": True, "resourceSubscriptions": ["a:b"], "taskIds": ["call_1"]}
    meta = {"io.modelcontextprotocol/subscriptionId": 1}
    acknowledgement = {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": accepted, "_meta": meta},
    }
    first, second = ScriptedStream(), ScriptedStream()
    for stream in (first, second):
        stream.write_event(acknowledgement)
    first.break_off()
    async with running_bridge() as stage:
        outage = [httpx2.ConnectError("refused")] * 200
        stage.service.script("subscriptions/listen", httpx2.ReadError("reset"), first, *outage, second)
        stage.send_request("subscriptions/listen", {"notifications": accepted} | MODERN_META)
        changed = await stage.wait_for_notification("notifications/tools/list_changed")
        updated = await stage.wait_for_notification("notifications/resources/updated")

    assert stage.clock.monotonic() > RECONNECT_SECONDS  # a subscription waits for the service without an end
    assert len(stage.select("notifications/subscriptions/acknowledged")) == 1
    assert (changed["params"], updated["params"]) == ({"_meta": meta}, {"uri": "a:b", "_meta": meta})


async def test_a_request_that_is_no_call_is_reported_as_sent_when_the_service_does_not_return() -> None:
    async with running_bridge() as stage:
        stage.service.script("resources/read", httpx2.ReadError("reset"), *[httpx2.ConnectError("refused")] * 100)
        response = await stage.request("resources/read", {"uri": "a:b"} | MODERN_META)

    assert "Check that Ringback runs, then send it again." in response["error"]["message"]
