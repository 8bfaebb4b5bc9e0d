"""Hostile requests: none is accepted, none crashes the receiver, and its handler sees none of them."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from ringback.receiver import Callback, ReceiverApp
from ringback.signing.secrets import generate_secret
from ringback.signing.standard_webhooks import build_signed_headers
from tests.support.signed_posts import NOW, SECRET, make_event_body

BODY: Final = json.dumps(make_event_body()).encode()
TIMESTAMP: Final = int(NOW.timestamp())
GOOD: Final = build_signed_headers([SECRET], message_id="evt_1", timestamp=TIMESTAMP, body=BODY)
OTHER: Final = build_signed_headers([generate_secret(b"o" * 32)], message_id="evt_1", timestamp=TIMESTAMP, body=BODY)
SIGNATURE: Final = GOOD["webhook-signature"]

Request = tuple[list[tuple[str, str]], bytes]


def change(**headers: str | None) -> Request:
    """The good request with these headers replaced, or removed where None."""
    replaced = GOOD | {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
    return [item for item in replaced.items() if headers.get(item[0].replace("-", "_"), "") is not None], BODY


def sign(body: bytes) -> Request:
    return list(build_signed_headers([SECRET], message_id="evt_1", timestamp=TIMESTAMP, body=body).items()), body


def at(offset: int) -> Request:
    signed = build_signed_headers([SECRET], message_id="evt_1", timestamp=TIMESTAMP + offset, body=BODY)
    return list(signed.items()), BODY


HOSTILE: Final[dict[str, Callable[[], Request]]] = {
    "no headers": lambda: ([], BODY),
    "no signature": lambda: change(webhook_signature=None),
    "an empty signature": lambda: change(webhook_signature=""),
    "another secret": lambda: (list(OTHER.items()), BODY),
    "a signature of version 0": lambda: change(webhook_signature=SIGNATURE.replace("v1,", "v0,")),
    "a signature without a version": lambda: change(webhook_signature=SIGNATURE.removeprefix("v1,")),
    "an unpadded signature": lambda: change(webhook_signature=SIGNATURE.rstrip("=")),
    "a signature in another alphabet": lambda: change(
        webhook_signature="v1,_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-A="
    ),
    "ten thousand signatures": lambda: change(webhook_signature=" ".join(["v1,AAAA"] * 10_000)),
    "letters that are not ASCII": lambda: change(webhook_signature="v1,\xe4\xf6\xfc"),
    "a NUL in the id": lambda: change(webhook_id="evt_1\0"),
    "a full stop in the id": lambda: change(webhook_id=f"evt_1.{TIMESTAMP}"),
    "an id of 100,000 characters": lambda: change(webhook_id="e" * 100_000),
    "another id": lambda: change(webhook_id="evt_2"),
    "two ids": lambda: ([("webhook-id", "evt_2"), *GOOD.items()], BODY),
    "two signatures headers": lambda: ([*GOOD.items(), ("Webhook-Signature", SIGNATURE)], BODY),
    "a timestamp with a sign": lambda: change(webhook_timestamp=f"+{TIMESTAMP}"),
    "a timestamp in Arabic-Indic digits": lambda: change(webhook_timestamp="\xb2\xb3"),
    "a timestamp with an exponent": lambda: change(webhook_timestamp="1e9"),
    "a timestamp of 5,000 digits": lambda: change(webhook_timestamp="9" * 5_000),
    "a message from yesterday": lambda: at(-86_400),
    "a message from tomorrow": lambda: at(86_400),
    "a changed body": lambda: (list(GOOD.items()), BODY.replace(b"call_1", b"call_2")),
    "a body with a byte more": lambda: (list(GOOD.items()), BODY + b" "),
    "no body": lambda: (list(GOOD.items()), b""),
    "a signed body that is no JSON": lambda: sign(b"\xff\xfe"),
    "a signed body of nested lists": lambda: sign(b"[" * 200_000),
    "a signed body with a number of 5,000 digits": lambda: sign(b'{"data":' + b"9" * 5_000 + b"}"),
    "a signed body with a lone surrogate": lambda: sign(BODY.replace(b'"c1"', b'"\\ud800"')),
    "a signed envelope of an unknown type": lambda: sign(b'{"type":"party"}'),
    "a signed challenge that is no text": lambda: sign(b'{"type":"verification","challenge":{"a":1}}'),
    "a signed gap without a cursor": lambda: sign(b'{"type":"gap","cursor":null}'),
}


async def send_raw(app: ReceiverApp, request: Request) -> tuple[int, bytes]:
    """Past every HTTP library, which would refuse to send some of these."""
    headers, body = request
    scope = {
        "type": "http",
        "method": "POST",
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.requirement("R23")
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_request_is_rejected_with_a_reason(name: str, caplog: pytest.LogCaptureFixture) -> None:
    handled: list[Callback] = []

    async def handle(callback: Callback) -> None:
        handled.append(callback)

    app = ReceiverApp(SECRET, on_callback=handle, clock=lambda: NOW)
    status, content = await send_raw(app, HOSTILE[name]())

    assert status == 400
    assert json.loads(content)["reason"]
    assert handled == []
    assert caplog.records == []
    assert (await send_raw(app, (list(GOOD.items()), BODY)))[0] == 204
    assert len(handled) == 1


def test_there_are_at_least_twenty_of_them() -> None:
    assert len(HOSTILE) >= 20
