"""`ringback events` and `ringback trigger` with a mocked service: requests, output and exit codes."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.cli.callback_text import describe_callback
from ringback.receiver.envelopes import Callback, parse
from ringback.schemas import callback_examples, examples
from tests.support.mocked_requests import get_last_request, list_requests, parse_query

Run = Callable[..., Result]

EVENTS = "/v1/events"


# -- events --


def events(*cursors: str, **changes: Any) -> httpx.Response:
    found = [{**examples.EVENT, "eventId": f"evt_{cursor}", "cursor": cursor} for cursor in cursors]
    page = {"events": found, "cursor": cursors[-1] if cursors else "z", "truncated": False, "has_more": False}
    return httpx.Response(200, json={**page, **changes})


def test_events_are_printed_with_the_cursor_to_continue_from(run: Run, service: respx.MockRouter) -> None:
    route = service.get(EVENTS).mock(return_value=events("b", "c"))

    ran = run("events", "--cursor", "a", "--name", "call.finished", "--call", "call_1", "--session", "s1")

    assert ran.exit_code == 0
    assert [line.split()[2] for line in ran.stdout.splitlines()] == ["call.finished"] * 2
    assert examples.EVENT["data"]["call_id"] in ran.stdout
    assert "--cursor c" in ran.stderr
    assert parse_query(get_last_request(route)) == {
        "cursor": "a",
        "name": "call.finished",
        "call_id": "call_1",
        "client_session_id": "s1",
    }


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (
            callback_examples.FAILING_CALLBACK,
            "70 % of the way to suspension at 2026-11-20T17:00:00.000Z: timeout. Answer",
        ),
        (callback_examples.SUSPENDED_CALLBACK, "suspended: timeout."),
        (callback_examples.RECOVERED_CALLBACK, "active"),
    ],
)
def test_an_event_about_a_webhook_says_how_the_webhook_fares(
    run: Run, service: respx.MockRouter, example: dict[str, Any], words: str
) -> None:
    service.get(EVENTS).mock(return_value=events("a", events=[example]))
    callback = parse(json.dumps(example).encode())
    assert isinstance(callback, Callback)

    for text in (run("events").stdout, describe_callback(callback)):
        assert f"{example['name']} {example['data']['webhook_id']} {words}" in text


def test_an_own_event_with_members_named_as_those_of_a_webhook_and_other_types_is_shown_with_its_data(
    run: Run, service: respx.MockRouter
) -> None:
    data = {"webhook_id": "w", "state": "on", "advice": {"next": 1}}
    event = {**examples.EVENT, "name": "deploy.done", "data": data}
    service.get(EVENTS).mock(return_value=events("a", events=[event]))
    callback = parse(json.dumps(event).encode())
    assert isinstance(callback, Callback)

    for text in (run("events").stdout, describe_callback(callback)):
        assert f"deploy.done {json.dumps(data)}" in text


def test_events_are_json_lines_in_the_form_of_the_rest_api(run: Run, service: respx.MockRouter) -> None:
    service.get(EVENTS).mock(return_value=events("a", "b"))

    lines = [json.loads(line) for line in run("events", "--json").stdout.splitlines()]

    assert [line["eventId"] for line in lines] == ["evt_a", "evt_b"]
    assert lines[0] == {**examples.EVENT, "eventId": "evt_a", "cursor": "a"}


def test_missing_events_are_told(run: Run, service: respx.MockRouter) -> None:
    service.get(EVENTS).mock(return_value=events("b", truncated=True))

    assert "are missing" in run("events", "--cursor", "a").stderr


def test_followed_events_are_printed_as_they_come_until_the_service_refuses(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.client.server_sent_events.RECONNECT_SECONDS_LIMIT", 0)

    async def body() -> AsyncIterator[bytes]:
        yield b"retry: 0\n\n"
        event = {**examples.EVENT, "cursor": "a"}
        yield f"id: a\nevent: call.finished\ndata: {json.dumps(event)}\n\n".encode()

    route = service.get(f"{EVENTS}/stream")
    route.side_effect = [
        httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body()),
        httpx.Response(401, json={"detail": "revoked"}, headers={"content-type": "application/problem+json"}),
    ]

    ran = run("events", "--follow")

    assert ran.exit_code == 2
    assert "call.finished" in ran.stdout
    assert ran.stderr.splitlines() == ["Continue: ringback events --cursor a", "Error: revoked"]
    assert list_requests(route)[1].headers["last-event-id"] == "a"


def test_a_refused_cursor_is_not_named_as_the_place_to_continue(run: Run, service: respx.MockRouter) -> None:
    service.get(EVENTS).respond(422, json={"detail": "Start without one."}, content_type="application/problem+json")

    ran = run("events", "--cursor", "abc")

    assert (ran.exit_code, ran.stderr.splitlines()) == (2, ["Error: Start without one."])


# -- trigger --

DELIVERY = {**examples.DELIVERY, "call_id": None, "state": "pending"}
OK_ATTEMPT = {**examples.ATTEMPT, "category": "success", "status_code": 204, "duration_ms": 12}
DELIVERED = {**DELIVERY, "state": "delivered", "attempts": [OK_ATTEMPT]}
DELIVERY_PATH = f"/v1/deliveries/{examples.DELIVERY_ID}"


def test_a_test_event_is_sent_and_its_outcome_shown(run: Run, service: respx.MockRouter) -> None:
    service.post("/v1/webhooks/wh_1/test").respond(202, json=DELIVERY)
    looks = service.get(DELIVERY_PATH)
    looks.side_effect = [httpx.Response(200, json={**DELIVERY, "attempts": []}), httpx.Response(200, json=DELIVERED)]

    ran = run("trigger", "wh_1")

    assert (ran.exit_code, ran.stdout) == (0, f"{examples.DELIVERY_ID} success (HTTP 204) in 12 ms\n")


def test_the_only_webhook_needs_no_name(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/webhooks").respond(json={"webhooks": [examples.WEBHOOK], "next_cursor": None})
    service.post(f"/v1/webhooks/{examples.WEBHOOK_ID}/test").respond(202, json=DELIVERY)
    service.get(DELIVERY_PATH).respond(json=DELIVERED)

    assert json.loads(run("trigger", "--json").stdout)["attempts"][0]["status_code"] == 204


@pytest.mark.parametrize(
    ("webhooks", "words"),
    [([], "ringback webhooks add"), ([examples.WEBHOOK] * 2, "Name one: ringback trigger WEBHOOK")],
    ids=["none", "two"],
)
def test_none_or_several_webhooks_are_an_error_that_says_what_to_do(
    run: Run, service: respx.MockRouter, webhooks: list[dict[str, Any]], words: str
) -> None:
    service.get("/v1/webhooks").respond(json={"webhooks": webhooks, "next_cursor": None})

    ran = run("trigger")

    assert ran.exit_code == 2
    assert words in ran.stderr


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"attempts": [examples.ATTEMPT]}, 1, "The receiver did not accept it."),
        ({"state": "held", "attempts": []}, 1, "ringback webhooks show"),
        ({"attempts": []}, 75, "No attempt was made yet."),
    ],
    ids=["refused", "held", "slow"],
)
def test_a_test_event_that_does_not_arrive_says_why(
    run: Run, service: respx.MockRouter, changes: dict[str, Any], code: int, words: str
) -> None:
    service.post("/v1/webhooks/wh_1/test").respond(202, json=DELIVERY)
    service.get(DELIVERY_PATH).respond(json={**DELIVERY, **changes})

    ran = run("trigger", "wh_1", "--wait-seconds", "0")

    assert ran.exit_code == code
    assert words in ran.stderr


def test_the_data_of_an_own_event_is_on_one_bounded_line(run: Run, service: respx.MockRouter) -> None:
    data = {"order": "o1\nx", "note": "n" * 500}
    own = {**examples.EVENT, "name": "order.paid", "data": data}
    service.get(EVENTS).respond(json={"events": [own], "cursor": "c", "hasMore": False, "truncated": False})

    printed = run("events").stdout

    assert ' order.paid {"order": "o1\\nx", "note": "nnn' in printed
    assert printed.endswith("n…\n")
    assert (printed.count("\n"), len(printed) < 250) == (1, True)
