"""Event ids and the notifications that wait for a session's own stream: bounds, and what replaces what."""

import os
from dataclasses import replace
from typing import Any, Final

import pytest
from mcp.server.streamable_http import GET_STREAM_KEY
from mcp_types import JSONRPCNotification, JSONRPCResponse

from ringback.domain.errors import InvalidCursor
from ringback.domain.ids import CallId
from ringback.mcp_server.event_ids import (
    EVENT_ID_LENGTH_MAX,
    PARAMS_BYTES_MAX,
    EventIds,
    EventPosition,
    OwnStream,
    StreamRequest,
    describe_request,
)
from ringback.mcp_server.session_events import LOG_ENTRIES_MAX, LOG_MESSAGE_BYTES_MAX, SessionEventStore
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer
from tests.support.stores import make_sealer

CALL_ID: Final = CallId("call_1")
LOG_ID: Final = "0" * 32


def make_ids(session_id: str = "s1") -> EventIds:
    return EventIds(make_sealer(), session_id)


def make_events(*, is_open: bool = False, log_id: str = LOG_ID) -> SessionEventStore:
    return SessionEventStore(make_ids(), log_id=log_id, is_own_stream_open=lambda: is_open)


def make_notification(uri: str, **more: Any) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/resources/updated", params={"uri": uri, **more})


def list_uris(events: SessionEventStore) -> list[str]:
    return [entry.event.message.model_dump()["params"]["uri"] for entry in events.list_unsent()]


def message(method: str, params: Any, *, request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


# -- event ids ----------------------------------------------------------------------------------------------------------------


def test_an_id_names_its_request_and_number_in_its_own_session_only() -> None:
    request = StreamRequest(request_id="é", method="tools/list", params={}, call_id=CALL_ID)
    event_id = f"{make_ids().seal_request(request)}.17"
    assert make_ids().parse(event_id) == EventPosition(request, 17)
    after_progress = make_ids().parse(f"{event_id}.p2.5")
    assert after_progress == EventPosition(replace(request, progress_sent=2.5), 17)
    own = f"{make_ids().seal_own_stream(OwnStream(LOG_ID))}.1"
    assert make_ids().parse(own) == EventPosition(OwnStream(LOG_ID), 1)
    for foreign in (event_id, own):
        with pytest.raises(InvalidCursor):
            make_ids("s2").parse(foreign)


def test_an_id_sealed_with_a_key_that_left_the_ring_is_unknown() -> None:
    other_ring = AesGcmSealer({"other": b"o" * KEY_BYTES}, current="other", random_bytes=os.urandom)
    event_id = f"{EventIds(other_ring, 's1').seal_own_stream(OwnStream(LOG_ID))}.1"
    with pytest.raises(InvalidCursor):
        make_ids().parse(event_id)


@pytest.mark.parametrize(
    "number",
    [
        "",
        ".last",
        "1.last.last",
        "1last",
        "-1",
        "1.5",
        "1.p",
        "1.px",
        "1.p1.p2",
        "1 ",
        "x",
        "\u0661",
        "9" * EVENT_ID_LENGTH_MAX,
    ],
)
def test_an_id_with_an_odd_number_is_unknown(number: str) -> None:
    with pytest.raises(InvalidCursor):
        make_ids().parse(f"{make_ids().seal_own_stream(OwnStream(LOG_ID))}.{number}")


def test_the_longest_id_is_accepted() -> None:
    params = {"x": "\u20ac" * ((PARAMS_BYTES_MAX - 8) // 3)}
    request = describe_request(message("m" * 64, params, request_id="\u20ac" * 256), CALL_ID)
    assert request is not None
    assert request.params == params
    event_id = f"{make_ids().seal_request(request)}.{10**17}"
    assert len(event_id) < EVENT_ID_LENGTH_MAX
    assert make_ids().parse(event_id).stream == request


def test_the_arguments_of_an_upstreams_tool_are_left_out_and_those_of_a_builtin_tool_are_not() -> None:
    meta = {"progressToken": 3, "ringback/idempotencyKey": "k", "ringback/callback": {"secret": "s"}}
    params = {"name": "paint", "arguments": {"x": "y" * PARAMS_BYTES_MAX}, "task": {"ttl": 1}, "_meta": meta}
    described = describe_request(message("tools/call", params), CALL_ID)
    assert described is not None
    assert described.params == {
        "name": "paint",
        "task": {"ttl": 1},
        "_meta": {"progressToken": 3, "ringback/idempotencyKey": "k"},
    }
    builtin = {"name": "ringback_get_call", "arguments": {"call_id": "c"}}
    described = describe_request(message("tools/call", builtin), CALL_ID)
    assert described is not None
    assert described.params == builtin


@pytest.mark.parametrize(
    "odd",
    [
        None,
        [],
        {"method": "x"},
        {"id": 1},
        {"id": None, "method": "x"},
        {"id": 1.5, "method": "x"},
        {"id": 1, "method": 2},
        {"id": "x" * 257, "method": "x"},
    ],
)
def test_what_is_no_request_has_no_description(odd: Any) -> None:
    assert describe_request(odd, CALL_ID) is None


@pytest.mark.parametrize("params", [[], "x", 1, {"x": "y" * PARAMS_BYTES_MAX}, {"x": 10**300}])
def test_params_that_do_not_fit_are_left_out(params: Any) -> None:
    described = describe_request(message("resources/read", params), CALL_ID)
    assert described is not None
    assert described.params is None


# -- events -------------------------------------------------------------------------------------------------------------------


async def test_events_of_a_request_have_ids_while_its_stream_is_open() -> None:
    events = make_events()
    request = StreamRequest(request_id=7, method="tools/list", params={}, call_id=CALL_ID)
    response = JSONRPCResponse(jsonrpc="2.0", id=7, result={})
    with events.open_stream("7", request):
        ids = [await events.store_event("7", None), await events.store_event("7", response)]
    assert [make_ids().parse(each).stream for each in ids] == [request, request]
    assert [make_ids().parse(each).is_last for each in ids] == [False, True]
    assert len(set(ids)) == 2
    assert await events.store_event("7", response) == ""


async def test_a_newer_notification_replaces_an_older_one_about_the_same_resource() -> None:
    events = make_events()
    for uri in ("a", "b", "a"):
        await events.store_event(GET_STREAM_KEY, make_notification(uri))
    assert list_uris(events) == ["b", "a"]


async def test_the_notifications_that_wait_are_bounded() -> None:
    events = make_events()
    for number in range(LOG_ENTRIES_MAX + 3):
        await events.store_event(GET_STREAM_KEY, make_notification(str(number)))
    await events.store_event(GET_STREAM_KEY, make_notification("large", text="x" * LOG_MESSAGE_BYTES_MAX))
    assert list_uris(events) == [str(number) for number in range(3, LOG_ENTRIES_MAX + 3)]


async def test_what_an_open_stream_carried_waits_only_for_a_client_that_did_not_receive_it() -> None:
    events = make_events(is_open=True)
    ids = [await events.store_event(GET_STREAM_KEY, make_notification(uri)) for uri in ("a", "b", "c")]
    assert list_uris(events) == []
    position = make_ids().parse(ids[0])
    assert isinstance(position.stream, OwnStream)
    events.send_again_after(position.stream, position.number)
    assert list_uris(events) == ["b", "c"]
    events.send_again_after(OwnStream("another process"), position.number)
    assert list_uris(events) == ["a", "b", "c"]


async def test_a_notification_that_waits_is_not_taken_for_received_because_a_later_one_was() -> None:
    """A stream that opens gets what waits and new notifications at once. If it breaks then, what still waited was lost."""
    streams: list[str] = []
    events = SessionEventStore(make_ids(), log_id=LOG_ID, is_own_stream_open=lambda: bool(streams))
    for uri in ("a", "b"):
        await events.store_event(GET_STREAM_KEY, make_notification(uri))
    streams.append("open")
    later_id = await events.store_event(GET_STREAM_KEY, make_notification("later"))
    first, _ = events.list_unsent()
    first_id, first.is_sent = events.renumber(first).event_id, True
    assert first_id is not None

    returning: dict[str, list[str]] = {}
    for last_id in (first_id, later_id):
        events.send_again_after(OwnStream(LOG_ID), make_ids().parse(last_id).number)
        returning[last_id] = list_uris(events)

    assert returning == {first_id: ["b"], later_id: ["a", "b"]}
