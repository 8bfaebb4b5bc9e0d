"""`ringback listen --port` and the webhook that it registers for its time."""

import asyncio
import errno
import json
import os
import signal
import time
from collections.abc import Callable
from unittest.mock import Mock

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.cli import callback_receiver
from ringback.cli.output import print_message
from ringback.schemas import examples
from ringback.signing.standard_webhooks import build_signed_headers
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import SECRET, make_event_body

Run = Callable[..., Result]
URL = "http://127.0.0.1:8090"


@pytest.fixture
def is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, once the receiver listens."""

    def interrupt(message: str) -> None:
        print_message(message)
        if message.startswith("Listening on"):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(callback_receiver, "print_message", interrupt)


@pytest.mark.usefixtures("is_interrupted")
def test_a_key_that_may_not_list_webhooks_receives_callbacks_and_leaves_no_webhook(run: Run) -> None:
    forbidden = httpx.Response(
        403,
        json={"type": "about:blank", "title": "Forbidden", "status": 403, "detail": "The key lacks the scope read."},
        headers={"content-type": "application/problem+json"},
    )
    with respx.mock(base_url=URL, assert_all_called=True) as service:
        service.put(url__regex=r"/v1/webhooks/by-name/listen-.*").respond(json=examples.REGISTERED_WEBHOOK)
        service.get("/v1/webhooks").mock(return_value=forbidden)
        service.delete(f"/v1/webhooks/{examples.WEBHOOK_ID}").respond(204)

        ended = run("listen", "--port", "0", "--url", URL)

    assert ended.exit_code == 0
    assert f"Registered the webhook {examples.WEBHOOK_ID}" in ended.stderr


@pytest.mark.usefixtures("is_interrupted")
def test_a_webhook_that_could_not_be_removed_is_named_with_the_command_that_removes_it(run: Run) -> None:
    with respx.mock(base_url=URL, assert_all_called=True) as service:
        service.put(url__regex=r"/v1/webhooks/by-name/listen-.*").respond(json=examples.REGISTERED_WEBHOOK)
        service.get("/v1/webhooks").respond(json={"webhooks": []})
        service.delete(f"/v1/webhooks/{examples.WEBHOOK_ID}").respond(
            403, json={"detail": "The key has expired."}, headers={"content-type": "application/problem+json"}
        )

        ended = run("listen", "--port", "0", "--url", URL)

    assert (
        f"{examples.WEBHOOK_ID} could not be removed: The key has expired. Remove it later: ringback webhooks remove "
        f"{examples.WEBHOOK_ID}"
    ) in ended.stderr


@pytest.fixture
async def address(monkeypatch: pytest.MonkeyPatch) -> "asyncio.Future[str]":
    """Where the receiver listens, once it does."""
    listening = asyncio.get_running_loop().create_future()

    def note(message: str) -> None:
        if message.startswith("Listening on "):
            listening.set_result(message.removeprefix("Listening on "))

    monkeypatch.setattr(callback_receiver, "print_message", note)
    return listening


async def post_callback(url: str, **headers: str) -> httpx.Response:
    body = json.dumps(make_event_body()).encode()
    signed = build_signed_headers([SECRET], message_id="evt_1", timestamp=int(time.time()), body=body)  # noqa: TID251 - the receiver has the system's clock
    async with httpx.AsyncClient(trust_env=False) as http:
        return await http.post(url, content=body, headers={**signed, **headers})


@pytest.mark.parametrize("as_json", [False, True])
async def test_a_receiver_whose_output_is_not_read_ends_and_does_not_refuse_callbacks_for_ever(
    monkeypatch: pytest.MonkeyPatch, address: "asyncio.Future[str]", *, as_json: bool
) -> None:
    """As `ringback listen --port 9000 | head -1` does, as soon as `head` has its line."""

    def fail(_: str) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(callback_receiver, "print_output", fail)
    receiving = asyncio.create_task(
        callback_receiver.receive_callbacks(0, SECRET, client=None, as_json=as_json, handle_stop_signals=Mock())
    )

    answer = await post_callback(await address)

    assert answer.status_code == 503
    with pytest.raises(BrokenPipeError):
        await asyncio.wait_for(receiving, WAIT_SECONDS)


async def test_a_callback_whose_sender_offers_another_protocol_is_received(
    monkeypatch: pytest.MonkeyPatch, address: "asyncio.Future[str]"
) -> None:
    """As Java's client does with each request to an http URL."""
    printed: list[str] = []
    stops: list[asyncio.Event] = []
    monkeypatch.setattr(callback_receiver, "print_output", printed.append)
    receiving = asyncio.create_task(
        callback_receiver.receive_callbacks(0, SECRET, client=None, as_json=True, handle_stop_signals=stops.append)
    )

    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAAA"}
    answer = await post_callback(await address, **offer)
    stops[0].set()
    await asyncio.wait_for(receiving, WAIT_SECONDS)

    assert answer.is_success
    assert [json.loads(line)["eventId"] for line in printed] == ["evt_1"]
