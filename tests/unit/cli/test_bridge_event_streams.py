"""MCP Events through `ringback mcp`: a lost stream continues where it was, and the client sees one stream."""

from typing import Any, Final

import pytest

from tests.support.bridge_stage import MODERN_META, BridgeStage, RecordedRequest, ScriptedStream, running_bridge

SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
STREAM: Final[dict[str, Any]] = {"name": "call.finished", "arguments": {}, "cursor": None}
ACTIVE: Final = "notifications/events/active"
EVENT: Final = "notifications/events/event"
HEARTBEAT: Final = "notifications/events/heartbeat"
ERAS: Final = pytest.mark.parametrize("is_modern", [True, False], ids=["modern", "legacy"])


def write_frame(stream: ScriptedStream, method: str, *, request_id: int | str, **params: Any) -> None:
    meta = {"_meta": {SUBSCRIPTION_ID: request_id}}
    stream.write_event({"jsonrpc": "2.0", "method": method, "params": {**params, **meta}})


async def open_era(stage: BridgeStage, *, is_modern: bool) -> dict[str, Any]:
    if is_modern:
        return STREAM | MODERN_META
    await stage.begin_session()
    return STREAM


def get_cursors(requests: list[RecordedRequest]) -> list[str | None]:
    return [each.message["params"]["cursor"] for each in requests]


@ERAS
@pytest.mark.parametrize("truncated", [False, True])
async def test_a_lost_stream_continues_at_the_cursor_of_its_last_frame(*, is_modern: bool, truncated: bool) -> None:
    first, second = ScriptedStream(), ScriptedStream()
    async with running_bridge() as stage:
        params = await open_era(stage, is_modern=is_modern)
        stage.service.script("events/stream", first, second)
        write_frame(first, ACTIVE, request_id="mine", cursor="c0", truncated=False)
        write_frame(first, EVENT, request_id="mine", eventId="e1", cursor="c1")
        write_frame(first, HEARTBEAT, request_id="mine", cursor="c2")
        first.break_off()
        write_frame(second, ACTIVE, request_id="again", cursor="c2", truncated=truncated)
        write_frame(second, EVENT, request_id="again", eventId="e2", cursor="c3")
        stage.send_request("events/stream", params, request_id="mine")
        await stage.service.wait_until(lambda: len(stage.select(EVENT)) == 2)
        frames = [each for each in stage.received if each.get("method", "").startswith("notifications/events/")]

    assert get_cursors(stage.service.select("events/stream")) == [None, "c2"]
    repeated = [ACTIVE] if truncated else []
    assert [each["method"] for each in frames] == [ACTIVE, EVENT, HEARTBEAT, *repeated, EVENT]
    assert {each["params"]["_meta"][SUBSCRIPTION_ID] for each in frames} == {"mine"}


async def test_the_end_of_a_stream_is_the_response_to_the_clients_request() -> None:
    stream = ScriptedStream()
    stream.write_event({"jsonrpc": "2.0", "id": "mine", "result": {"_meta": {SUBSCRIPTION_ID: "mine"}}})
    async with running_bridge() as stage:
        stage.service.script("events/stream", stream)
        response = await stage.request("events/stream", STREAM | MODERN_META, request_id="mine")

    assert response["result"] == {"_meta": {SUBSCRIPTION_ID: "mine"}}


@pytest.mark.parametrize("method", ["events/list", "events/poll", "events/subscribe", "events/unsubscribe"])
async def test_the_other_methods_are_forwarded_unchanged_without_a_name_header(method: str) -> None:
    params = {"name": "call.finished", "arguments": {"call_id": "c"}, "delivery": {"url": "https://a.example"}}
    async with running_bridge() as stage:
        stage.service.script(method, {"refreshBefore": None, "cursor": None})
        response = await stage.request(method, params | MODERN_META)
        (sent,) = stage.service.select(method)

    assert response["result"] == {"refreshBefore": None, "cursor": None}
    assert sent.message["params"] == params | MODERN_META
    assert sent.headers["mcp-method"] == method
    assert "mcp-name" not in sent.headers
