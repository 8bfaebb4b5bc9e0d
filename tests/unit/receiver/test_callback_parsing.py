"""Parsing of bodies, and the errors for invalid ones."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from ringback.receiver import Callback, Gap, MalformedBody, Terminated, Verification, parse

EVENT_BODY: dict[str, Any] = {
    "eventId": "evt_1",
    "name": "call.finished",
    "timestamp": "2026-11-20T17:00:00.123Z",
    "cursor": "place-7",
    "data": {
        "call_id": "call_1",
        "status": "completed",
        "outcome": "result",
        "upstream": "git",
        "tool": "git_log",
        "correlation_id": "c1",
        "client_session_id": "s1",
        "resume_token": "the.token",
        "resume_url": "https://ringback.example/v1/resume",
        "result_bytes": 12,
    },
}


def parsed(envelope: Any) -> Callback | Verification | Gap | Terminated:
    return parse(json.dumps(envelope).encode(), subscription_id="wh_1")


@pytest.mark.requirement("R18")
def test_a_callback_has_its_most_used_members_as_attributes() -> None:
    assert parsed(EVENT_BODY) == Callback(
        subscription_id="wh_1",
        event_id="evt_1",
        name="call.finished",
        timestamp=datetime(2026, 11, 20, 17, 0, 0, 123_000, UTC),
        cursor="place-7",
        call_id="call_1",
        status="completed",
        outcome="result",
        upstream="git",
        tool="git_log",
        correlation_id="c1",
        client_session_id="s1",
        resume_token="the.token",
        resume_url="https://ringback.example/v1/resume",
        data=EVENT_BODY["data"],
    )


def test_the_repr_of_a_callback_omits_its_token_and_its_data() -> None:
    shown = repr(parsed({**EVENT_BODY, "data": {**EVENT_BODY["data"], "result": "private"}}))

    assert "evt_1" in shown
    assert "the.token" not in shown
    assert "private" not in shown


def test_fields_missing_from_a_callback_are_none() -> None:
    bare: dict[str, Any] = {
        "eventId": "evt_1",
        "name": "upstream.changed",
        "timestamp": "2026-11-20T18:00:00+01:00",
        "data": {},
    }
    callback = parse(json.dumps(bare).encode())

    assert isinstance(callback, Callback)
    assert callback.timestamp == datetime(2026, 11, 20, 17, tzinfo=UTC)
    assert (callback.cursor, callback.call_id, callback.resume_token, callback.subscription_id) == (None,) * 4


def test_members_that_a_later_sender_adds_are_kept_in_the_data_and_else_ignored() -> None:
    callback = parsed({**EVENT_BODY, "_meta": {}, "data": {**EVENT_BODY["data"], "mood": "good"}})

    assert isinstance(callback, Callback)
    assert callback.data["mood"] == "good"


@pytest.mark.parametrize("name", ["deploy.finished", "call.ended"])
def test_the_data_of_an_event_of_others_may_have_members_of_the_same_names_and_any_type(name: str) -> None:
    data: dict[str, Any] = {
        "status": 200,
        "tool": {"name": "hammer"},
        "call_id": 7,
        "correlation_id": ["c1"],
        "client_session_id": "\ud800",
        "subscription_id": True,
        "upstream": "git",
    }
    callback = parsed({**EVENT_BODY, "name": name, "data": data})

    assert isinstance(callback, Callback)
    assert (callback.status, callback.tool, callback.call_id, callback.correlation_id) == (None,) * 4
    assert (callback.client_session_id, callback.subscription_id, callback.upstream) == (None, "wh_1", "git")
    assert callback.data == data


def test_a_type_marks_a_control_envelope() -> None:
    error = {"code": -32011, "message": "NotFound", "data": {"kind": "event"}}

    assert parsed({"type": "verification", "challenge": "n"}) == Verification(challenge="n")
    assert parsed({"type": "gap", "cursor": "place-9"}) == Gap(subscription_id="wh_1", cursor="place-9")
    assert parsed({"type": "terminated", "error": error}) == Terminated(
        subscription_id="wh_1", code=-32011, message="NotFound", data={"kind": "event"}
    )


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        ([], "The body must be a JSON object."),
        ("text", "The body must be a JSON object."),
        ({}, "data must be a JSON object."),
        ({**EVENT_BODY, "data": None}, "data must be a JSON object."),
        ({**EVENT_BODY, "eventId": None}, "eventId is missing."),
        ({**EVENT_BODY, "name": 7}, "name must be a string."),
        ({**EVENT_BODY, "cursor": 7}, "cursor must be a string."),
        ({**EVENT_BODY, "timestamp": "yesterday"}, "timestamp must be an ISO 8601 date and time."),
        ({**EVENT_BODY, "timestamp": "2026-11-20T17:00:00"}, "timestamp must have an offset, such as Z."),
        ({**EVENT_BODY, "data": {"correlation_id": ["c1"]}}, "correlation_id must be a string."),
        ({**EVENT_BODY, "type": "call.finished"}, "This receiver does not know this type of control envelope."),
        ({"type": 7}, "This receiver does not know this type of control envelope."),
        ({"type": "verification"}, "challenge is missing."),
        ({"type": "gap", "cursor": None}, "cursor is missing."),
        ({"type": "terminated"}, "error must be a JSON object."),
        ({"type": "terminated", "error": {"code": True, "message": "x"}}, "code must be an integer."),
    ],
)
def test_an_unknown_body_is_rejected_with_a_reason(envelope: Any, reason: str) -> None:
    with pytest.raises(MalformedBody) as refused:
        parsed(envelope)

    assert str(refused.value) == reason


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 10_000])
def test_a_body_that_is_not_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        parse(body)
