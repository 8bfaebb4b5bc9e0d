"""Polls and streams with cursors, ages, counts and ids that no honest client sends."""

import base64
import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interaction.gateway_events_hostile.conftest import FINISHED, INVALID_PARAMS, EventsGate, encode
from tests.support.mcp_wire import Json, JsonRpcMessages

LONG: Final = "x" * 100_000
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
WRONG_NUMBERS: Final[tuple[Any, ...]] = (-1, -0.5, "5", [], {}, True, float("nan"), float("inf"), -(2**63))
REQUEST_IDS: Final[tuple[Any, ...]] = (0, 7, -1, 2**53, "", "7", "ä\n\x00", "x" * 1000, "null")
WRONG_IDS: Final[tuple[Any, ...]] = (None, True, 1.5, [], {}, ["a"])
HUGE_NUMBERS: Final[tuple[Any, ...]] = (2**53, 2**63, 2**64, 1e300, 10**400)


def poll(**members: Any) -> Json:
    return {"name": FINISHED, "arguments": {}, "cursor": None, **members}


async def read_cursor(gate: EventsGate, principal: str) -> str:
    """A cursor of this principal's log, which is not empty."""
    await gate.end_call(principal)
    page = (await gate.send("events/poll", poll(), principal=principal))["result"]
    assert page["events"] == []
    return str(page["cursor"])


def forge(cursor: str) -> list[str]:
    """Cursors that differ from this one in a character, a length or an encoding."""
    middle = len(cursor) // 2
    return [
        *("", " ", "0", "-1", "null", "99999999999999999999", "\x00", "ä", "../..", "' OR 1=1 --"),
        cursor[:-1],
        f"{cursor}A",
        f"{cursor}=",
        cursor[:middle] + ("A" if cursor[middle] != "A" else "B") + cursor[middle + 1 :],
        cursor.swapcase(),
        cursor * 100,
        base64.urlsafe_b64encode(json.dumps({"seq": 10**30}).encode()).decode(),
    ]


async def test_a_cursor_that_was_never_issued_is_a_gap_with_a_fresh_cursor(gate: EventsGate) -> None:
    cursor = await read_cursor(gate, "forger")
    for forged in forge(cursor):
        answer = await gate.send("events/poll", poll(cursor=forged), principal="forger")
        page = answer.get("result")
        assert page is not None, (forged, answer)
        follow_up = (await gate.send("events/poll", poll(cursor=page["cursor"]), principal="forger"))["result"]
        assert follow_up["truncated"] is False, forged


async def test_a_cursor_of_another_log_shows_nothing_of_that_log(gate: EventsGate) -> None:
    call_ids = {await gate.end_call("ada") for _ in range(3)}
    foreign = await read_cursor(gate, "bob")

    page = (await gate.send("events/poll", poll(cursor=foreign), principal="ada"))["result"]
    other = (await gate.send("events/poll", poll(cursor=page["cursor"]), principal="bob"))["result"]

    assert {event["data"]["call_id"] for event in page["events"]} <= call_ids
    assert not {event["data"]["call_id"] for event in other["events"]} & call_ids


@pytest.mark.parametrize("member", ["maxAgeMs", "maxEvents", "timeoutMs", "waitMs"])
async def test_a_number_that_is_none_or_negative_is_invalid(gate: EventsGate, member: str) -> None:
    for value in WRONG_NUMBERS:
        answer = await gate.send("events/poll", poll(**{member: value}))
        assert answer["error"]["code"] == INVALID_PARAMS, (member, value)


@pytest.mark.parametrize("member", ["maxAgeMs", "maxEvents"])
async def test_a_huge_number_is_clamped_or_invalid_and_never_a_failure(gate: EventsGate, member: str) -> None:
    cursor = await read_cursor(gate, "giant")
    for value in HUGE_NUMBERS:
        for given_cursor in (None, cursor):
            answer = await gate.send("events/poll", poll(**{member: value}, cursor=given_cursor), principal="giant")
            assert "result" in answer or answer["error"]["code"] == INVALID_PARAMS, (member, value)


async def test_zero_events_or_half_an_event_cannot_be_asked_for(gate: EventsGate) -> None:
    for value in (0, 0.5, 1.5):
        assert (await gate.send("events/poll", poll(maxEvents=value)))["error"]["code"] == INVALID_PARAMS


async def test_one_event_at_a_time_leads_through_the_whole_log(gate: EventsGate) -> None:
    cursor = await read_cursor(gate, "walker")
    call_ids = [await gate.end_call("walker") for _ in range(4)]
    seen: list[str] = []
    has_more = True
    while has_more:
        page = (await gate.send("events/poll", poll(cursor=cursor, maxEvents=1), principal="walker"))["result"]
        assert len(page["events"]) <= 1
        assert page["nextPollMs"] >= 1000
        seen += [event["data"]["call_id"] for event in page["events"]]
        cursor, has_more = page["cursor"], page["hasMore"]

    assert seen == call_ids


async def test_an_age_of_zero_skips_what_was_and_says_so(gate: EventsGate) -> None:
    cursor = await read_cursor(gate, "aged")
    await gate.end_call("aged")

    page = (await gate.send("events/poll", poll(cursor=cursor, maxAgeMs=0), principal="aged"))["result"]
    from_now = (await gate.send("events/poll", poll(maxAgeMs=0), principal="aged"))["result"]

    assert (page["events"], page["truncated"]) == ([], True)
    assert (from_now["events"], from_now["truncated"]) == ([], False)


@pytest.mark.parametrize("method", ["events/poll", "events/stream", "events/subscribe", "events/unsubscribe"])
@given(params=st.dictionaries(st.text(max_size=20), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
), max_size=4), name=st.just(FINISHED) | st.text(max_size=300))  # fmt: skip
async def test_any_params_get_an_answer_that_is_no_failure_of_the_server(
    gate: EventsGate, method: str, params: Json, name: str
) -> None:
    answer = await gate.send(method, {"delivery": {}, **params, "name": name, "arguments": {"unknown": 1}})

    assert answer["error"]["code"] in {-32602, -32600, -32700, -32011, -32014}


@pytest.mark.parametrize("request_id", REQUEST_IDS, ids=range(len(REQUEST_IDS)))
async def test_every_frame_of_a_stream_has_the_id_of_its_request_with_its_type(
    gate: EventsGate, request_id: Any
) -> None:
    await gate.end_call("streamer")
    headers = {
        "authorization": f"Bearer {await gate.get_key('streamer')}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "events/stream",
    }
    body = encode("events/stream", poll(), request_id=request_id)
    async with gate.http.stream("POST", f"{gate.url}/mcp", content=body, headers=headers) as response:
        frames = JsonRpcMessages(response)
        active = await frames.read_message()
        call_id = await gate.end_call("streamer")
        event = await frames.read_message("notifications/events/event")

    assert active["method"] == "notifications/events/active"
    for frame in (active, event):
        assert frame["params"]["_meta"][SUBSCRIPTION_ID] == request_id
        assert type(frame["params"]["_meta"][SUBSCRIPTION_ID]) is type(request_id)
    assert event["params"]["data"]["call_id"] == call_id


@pytest.mark.parametrize("request_id", WRONG_IDS, ids=range(len(WRONG_IDS)))
async def test_a_request_with_an_id_of_another_type_opens_no_stream(gate: EventsGate, request_id: Any) -> None:
    response = await gate.post(encode("events/stream", poll(), request_id=request_id), method="events/stream")

    assert 400 <= response.status_code < 500 or "error" in response.text
    assert await gate.count_streams() == 0


async def test_a_watched_uri_with_u_0000_is_refused_and_stops_no_other_principal(gate: EventsGate) -> None:
    def watch(uri: str) -> Json:
        return {"name": "upstream.changed", "arguments": {"upstream": "stage", "uri": uri}, "cursor": None}

    refused = await gate.send("events/poll", watch("book://\0"), principal="mallory")
    answer = await gate.send("events/poll", watch("book://1"), principal="watcher")

    assert refused["error"]["code"] == INVALID_PARAMS
    assert "result" in answer


async def test_a_name_with_a_hundred_thousand_characters_is_not_repeated(gate: EventsGate) -> None:
    answer = await gate.send("events/poll", poll(name=LONG))

    assert answer["error"]["code"] == INVALID_PARAMS
    assert len(str(answer)) < 2_000
