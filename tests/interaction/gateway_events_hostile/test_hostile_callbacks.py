"""Receivers that answer the challenge wrongly: events/subscribe itself fails, nothing is stored, and nothing is delivered."""

from typing import Final

import orjson
import pytest

from tests.interaction.gateway_events_hostile.conftest import (
    CALLBACK_ENDPOINT_ERROR,
    EventsGate,
    events_of,
    make_subscription,
)
from tests.support.receivers import (
    Behaviour,
    Receiver,
    close_after_request,
    close_at_once,
    close_within_body,
    half_close,
    reset_connection,
    respond_with,
    response,
    send_body_endlessly,
    send_bytes,
    send_headers_endlessly,
    send_informational_endlessly,
    send_status_line_endlessly,
    serving_receiver,
)

CANARY: Final = "text-of-the-receiver"
JSON: Final = "application/json"


def answer(body: object, status: str = "200 OK") -> Behaviour:
    return respond_with(response(status, orjson.dumps(body), content_type=JSON))


WRONG_ANSWERS: Final[dict[str, tuple[Behaviour, str]]] = {
    "another challenge": (answer({"challenge": CANARY}), "challenge_failed"),
    "an empty challenge": (answer({"challenge": ""}), "challenge_failed"),
    "a challenge in a list": (answer({"challenge": [CANARY]}), "challenge_failed"),
    "a list": (answer([CANARY]), "challenge_failed"),
    "no JSON": (respond_with(response("200 OK", CANARY.encode(), content_type=JSON)), "challenge_failed"),
    "no UTF-8": (respond_with(response("200 OK", b"\xff\xfe\x00", content_type=JSON)), "challenge_failed"),
    "deep nesting": (respond_with(response("200 OK", b"[" * 50_000, content_type=JSON)), "challenge_failed"),
    "a huge body": (answer({"challenge": CANARY * 100_000}), "challenge_failed"),
    "no body": (respond_with(response("204 No Content")), "challenge_failed"),
    "not found": (answer({"error": CANARY}, "404 Not Found"), "http_4xx"),
    "gone": (answer({"error": CANARY}, "410 Gone"), "http_4xx"),
    "too many requests": (respond_with(response("429 Too Many", retry_after="86400")), "http_4xx"),
    "a server error": (answer({"error": CANARY}, "500 Internal Server Error"), "http_5xx"),
    "garbage": (send_bytes(b"\x16\x03\x01" + CANARY.encode()), "challenge_failed"),
    "another protocol": (send_bytes(f"SSH-2.0-{CANARY}\r\n".encode()), "challenge_failed"),
    "endless headers": (send_headers_endlessly, "challenge_failed"),
    "an endless status line": (send_status_line_endlessly, "challenge_failed"),
    "endless interim responses": (send_informational_endlessly, "challenge_failed"),
    "an endless body": (send_body_endlessly, "challenge_failed"),
    "part of a body": (close_within_body, "challenge_failed"),
    "a connection that closes": (close_after_request, "connection_refused"),
    "a connection that closes at once": (close_at_once, "connection_refused"),
    "a reset": (reset_connection, "connection_refused"),
    "half a connection": (half_close, "connection_refused"),
}
"""A behaviour, and the reason that fits it best. Other reasons of the six are accepted: which one is the sender's decision."""
REASONS: Final = {"connection_refused", "timeout", "tls_error", "http_4xx", "http_5xx", "challenge_failed"}
EXACT: Final = {name for name, (_, reason) in WRONG_ANSWERS.items() if reason.startswith("http")} | {
    "another challenge",
    "a list",
    "no JSON",
}


@pytest.mark.requirement("R26")
@pytest.mark.parametrize("what", sorted(WRONG_ANSWERS))
async def test_a_wrong_answer_to_the_challenge_fails_the_subscribe_and_leaves_nothing(
    gate: EventsGate, what: str
) -> None:
    behaviour, reason = WRONG_ANSWERS[what]
    before = gate.count_rows()
    async with serving_receiver(behaviour) as receiver:
        url = receiver.url(f"/{what.replace(' ', '-')}")
        answered = await gate.send("events/subscribe", make_subscription(url))
        await gate.end_call()

    error = answered["error"]
    assert error["code"] == CALLBACK_ENDPOINT_ERROR, error
    assert error["data"]["reason"] in ({reason} if what in EXACT else REASONS)
    assert error["message"].startswith("CallbackEndpointError")
    assert CANARY not in str(error)
    assert gate.count_rows() == before
    assert not events_of(receiver)


@pytest.mark.requirement("R26")
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_a_redirect_of_the_challenge_is_not_followed(gate: EventsGate, receiver: Receiver, status: str) -> None:
    before = gate.count_rows()
    async with serving_receiver(respond_with(response(status, location=receiver.url("/elsewhere")))) as redirecting:
        answered = await gate.send("events/subscribe", make_subscription(redirecting.url("/hook")))
        await gate.end_call()

    assert answered["error"]["code"] == CALLBACK_ENDPOINT_ERROR
    assert answered["error"]["data"]["reason"] in REASONS
    assert not receiver.requests
    assert gate.count_rows() == before


async def test_a_port_where_nothing_listens_is_connection_refused(gate: EventsGate) -> None:
    async with serving_receiver(close_at_once) as closed:
        url = closed.url()

    answered = await gate.send("events/subscribe", make_subscription(url))

    assert answered["error"]["code"] == CALLBACK_ENDPOINT_ERROR
    assert answered["error"]["data"] == {"reason": "connection_refused"}


async def test_the_challenge_is_the_only_request_before_the_subscription_exists(
    gate: EventsGate, receiver: Receiver
) -> None:
    """It is signed with the client's secret, names the subscription and carries nothing else."""
    granted = (await gate.send("events/subscribe", make_subscription(receiver.url("/only"))))["result"]

    (request,) = receiver.requests
    assert request.headers["x-mcp-subscription-id"] == granted["id"]
    assert request.headers["webhook-id"].startswith("msg_verification_")
    assert request.headers["content-type"] == JSON
    assert orjson.loads(request.body).keys() == {"type", "challenge"}
