"""A legacy session of `ringback mcp` begins again when Ringback no longer knows it, and its stream is opened again."""

import asyncio
from typing import Any

import httpx2

from ringback.cli.stdio_bridge.session_stream import REFUSED_PAUSE_SECONDS
from tests.support.bridge_stage import INITIALIZE_PARAMS, BridgeStage, ScriptedStream, running_bridge


async def subscribe(stage: BridgeStage, *uris: str) -> None:
    for uri in uris:
        await stage.request("resources/subscribe", {"uri": uri}, request_id=f"subscribe {uri}")


def lose_sessions(stage: BridgeStage) -> None:
    """Ringback has restarted without its sessions."""
    stage.service.lost_sessions.update(stage.service.sessions)


async def test_a_lost_session_begins_again_and_the_request_gets_its_response() -> None:
    async with running_bridge() as stage:
        await stage.begin_session()
        lose_sessions(stage)
        response = await stage.request("tools/list")
        first, second = stage.service.select("initialize")
        initialized = stage.service.select("notifications/initialized")
        listed = stage.service.select("tools/list")

    assert response["result"] == {}
    assert (second.message["params"], second.session_id) == (first.message["params"], None)
    assert [each.session_id for each in initialized] == ["session-1", "session-2"]
    assert [each.session_id for each in listed] == ["session-1", "session-2"]
    assert stage.select("initialize") == []
    assert listed[1].headers["mcp-protocol-version"] == "2025-11-25"


async def test_messages_that_do_not_wait_for_the_handshake_are_sent_after_it() -> None:
    """`printf '…' | ringback mcp`, as everybody tries an MCP server in a shell."""
    async with running_bridge() as stage:
        stage.send_request("initialize", INITIALIZE_PARAMS, request_id=1)
        stage.send(method="notifications/initialized")
        stage.send_request("tools/list", request_id=2)
        await stage.wait_for_response(2)
        sent = [(each.method, each.session_id) for each in stage.service.requests if each.method is not None]

    assert sent == [("initialize", None), ("notifications/initialized", "session-1"), ("tools/list", "session-1")]


async def test_a_client_that_initializes_again_gets_the_stream_of_its_new_session() -> None:
    """As a proxy does that puts several clients, one after the other, on one command."""
    first, second = ScriptedStream(), ScriptedStream()
    async with running_bridge() as stage:
        stage.service.script("GET", first, second)
        await stage.begin_session()
        await subscribe(stage, "file:///a")
        await stage.request("initialize", INITIALIZE_PARAMS, request_id="again")
        stage.send(method="notifications/initialized")
        await stage.service.wait_until(lambda: len(stage.service.select("GET")) == 2)
        second.write_event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await stage.wait_for_notification("notifications/tools/list_changed")
        lose_sessions(stage)
        await stage.request("tools/list")

    assert [each.session_id for each in stage.service.select("GET")[:2]] == ["session-1", "session-2"]
    assert [each.session_id for each in stage.service.select("DELETE")] == ["session-1", "session-3"]
    assert len(stage.service.select("resources/subscribe")) == 1


async def test_the_version_that_was_agreed_upon_is_kept() -> None:
    async with running_bridge() as stage:
        stage.service.version = "2025-06-18"
        await stage.begin_session()
        lose_sessions(stage)
        await stage.request("tools/list")

        assert stage.service.select("initialize")[1].message["params"]["protocolVersion"] == "2025-06-18"


async def test_a_service_that_no_longer_speaks_the_version_says_what_to_do() -> None:
    async with running_bridge() as stage:
        await stage.begin_session()
        lose_sessions(stage)
        stage.service.version = "2030-01-01"
        response = await stage.request("tools/list")

    assert "no longer speaks MCP 2025-11-25, but 2030-01-01" in response["error"]["message"]
    assert "Start this server again in your MCP client." in response["error"]["message"]


async def test_subscriptions_and_the_log_level_move_to_the_new_session() -> None:
    async with running_bridge() as stage:
        await stage.begin_session()
        await subscribe(stage, "a:kept", "a:dropped")
        await stage.request("resources/unsubscribe", {"uri": "a:dropped"}, request_id=2)
        await stage.request("logging/setLevel", {"level": "debug"}, request_id=3)
        lose_sessions(stage)
        await stage.request("tools/list", request_id=4)
        moved = [each for each in stage.service.requests if each.session_id == "session-2"]

    params = [each.message.get("params") for each in moved if each.http_method == "POST"]
    assert [each.method for each in moved if each.http_method == "POST"] == [
        "notifications/initialized",
        "resources/subscribe",
        "logging/setLevel",
        "tools/list",
    ]
    assert params[1:3] == [{"uri": "a:kept"}, {"level": "debug"}]


async def test_a_subscription_that_is_refused_afterwards_does_not_end_the_session() -> None:
    refused = httpx2.Response(200, json={"jsonrpc": "2.0", "id": 1, "error": {"code": -32002, "message": "gone"}})
    async with running_bridge() as stage:
        await stage.begin_session()
        await subscribe(stage, "a:gone", "a:there")
        stage.service.script("resources/subscribe", refused)
        lose_sessions(stage)
        response = await stage.request("tools/list")

        assert len(stage.service.select("resources/subscribe")) == 4
    assert response["result"] == {}


async def test_requests_that_find_the_session_lost_at_once_begin_one_session() -> None:
    async with running_bridge() as stage:
        await stage.begin_session()
        lose_sessions(stage)
        responses = await asyncio.gather(
            *(stage.request("tools/list", request_id=f"list {number}") for number in range(10))
        )

    assert len(stage.service.sessions) == 2
    assert all("result" in response for response in responses)


async def test_a_session_that_the_service_kept_is_used_further() -> None:
    async with running_bridge() as stage:
        await stage.begin_session()
        stage.service.script("tools/list", httpx2.ReadError("reset"), httpx2.ConnectError("refused"))
        await stage.request("tools/list")

        assert stage.service.sessions == ["session-1"]
        assert [each.session_id for each in stage.service.select("tools/list")] == ["session-1"] * 3


async def test_the_session_s_stream_is_opened_again_where_it_broke() -> None:
    first = ScriptedStream()
    first.write_event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info"}}, event_id="7")
    first.break_off()
    async with running_bridge() as stage:
        stage.service.script("GET", first, httpx2.ConnectError("refused"))
        await stage.begin_session()
        await stage.service.wait_until(lambda: len(stage.service.select("GET")) == 3)
        resumed = [each.headers.get("last-event-id") for each in stage.service.select("GET")]

    assert resumed == [None, "7", "7"]
    assert len(stage.select("notifications/message")) == 1


async def test_the_session_s_stream_is_opened_again_after_an_event_without_data() -> None:
    first = ScriptedStream()
    first.write_empty_event("7")
    first.break_off()
    async with running_bridge() as stage:
        stage.service.script("GET", first)
        await stage.begin_session()
        await stage.service.wait_until(lambda: len(stage.service.select("GET")) == 2)

        assert [each.headers.get("last-event-id") for each in stage.service.select("GET")] == [None, "7"]


async def test_the_session_s_stream_alone_finds_that_the_session_is_lost() -> None:
    stream = ScriptedStream()
    async with running_bridge() as stage:
        stage.service.script("GET", stream)
        await stage.begin_session()
        await subscribe(stage, "a:b")
        lose_sessions(stage)
        stream.break_off()
        updated = await stage.wait_for_notification("notifications/resources/updated")
        changed = await stage.wait_for_notification("notifications/tools/list_changed")

    assert updated["params"] == {"uri": "a:b"}
    assert "params" not in changed
    assert stage.select("notifications/prompts/list_changed") == []  # the service has no prompts
    assert stage.service.select("GET")[-1].session_id == "session-2"


async def test_a_stream_that_the_service_ends_regularly_reports_no_changed_lists() -> None:
    stream = ScriptedStream()
    async with running_bridge() as stage:
        stage.service.script("GET", stream)
        await stage.begin_session()
        await subscribe(stage, "a:b")
        stream.end()
        await stage.wait_for_notification("notifications/resources/updated")

    assert stage.select("notifications/tools/list_changed") == []


async def test_a_refused_stream_is_tried_again_later() -> None:
    problem: dict[str, Any] = {"type": "/problems/quota", "detail": "Too many streams."}
    async with running_bridge() as stage:
        stage.service.script("GET", httpx2.Response(429, json=problem))
        await stage.begin_session()
        await stage.service.wait_until(lambda: len(stage.service.select("GET")) == 2)

        assert stage.clock.monotonic() >= REFUSED_PAUSE_SECONDS


async def test_an_event_that_the_service_does_not_know_is_forgotten() -> None:
    first = ScriptedStream()
    first.write_event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info"}}, event_id="7")
    first.break_off()
    async with running_bridge() as stage:
        stage.service.script("GET", first, httpx2.Response(400, json={"detail": "Unknown event."}))
        await stage.begin_session()
        await stage.service.wait_until(lambda: len(stage.service.select("GET")) == 3)

        assert [each.headers.get("last-event-id") for each in stage.service.select("GET")] == [None, "7", None]


async def test_a_service_that_forgets_every_session_is_reported() -> None:
    async with running_bridge() as stage:
        await stage.begin_session()
        lost = httpx2.Response(404, json={})
        stage.service.script("tools/list", *[lost] * 1000)
        response = await stage.request("tools/list")

    assert "does not know a session that it has just begun" in response["error"]["message"]


async def test_the_end_of_the_bridge_ends_the_session() -> None:
    async with running_bridge() as stage:
        await stage.begin_session()

    (deleted,) = stage.service.select("DELETE")
    assert (deleted.session_id, deleted.headers["authorization"]) == ("session-1", "Bearer rbk_1")
