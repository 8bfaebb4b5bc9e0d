"""The receiver as an ASGI application: its responses and its calls of handlers."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ringback import receiver as public
from ringback.receiver import Callback, Gap, ReceiverApp, Terminated, asgi
from ringback.receiver.asgi import BODY_BYTES_MAX
from tests.support.limits import WAIT_SECONDS
from tests.support.recording_handler import RecordingHandler, make_app
from tests.support.signed_posts import NOW, SECRET, make_client, make_event_body, post_signed
from tests.unit.receiver.test_receiver_secrets import OTHER_SECRET


@pytest.mark.requirement("R23")
async def test_a_signed_callback_is_handed_over_and_acknowledged() -> None:
    inbox = RecordingHandler()

    answer = await post_signed(make_app(inbox), make_event_body(outcome="result"))

    assert (answer.status_code, answer.content) == (204, b"")
    (callback,) = inbox.callbacks
    assert (callback.event_id, callback.subscription_id) == ("evt_1", "wh_1")
    assert (callback.correlation_id, callback.outcome) == ("c1", "result")


@pytest.mark.requirement("R23")
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"webhook-signature": "v1,forged"}, "No signature matches"),
        ({"webhook-signature": ""}, "webhook-signature is missing"),
        ({"webhook-id": "evt_2"}, "No signature matches"),
        ({"webhook-timestamp": "soon"}, "webhook-timestamp is malformed"),
    ],
)
async def test_a_message_with_an_invalid_signature_is_rejected_with_a_reason(
    changed: dict[str, str], reason: str
) -> None:
    inbox = RecordingHandler()

    answer = await post_signed(make_app(inbox), make_event_body(), changed=changed)

    assert answer.status_code == 400
    assert reason in answer.json()["reason"]
    assert inbox.callbacks == []


@pytest.mark.parametrize(("age_seconds", "reason"), [(301, "too old"), (-301, "too new")])
async def test_a_message_with_an_old_timestamp_is_rejected(age_seconds: int, reason: str) -> None:
    answer = await post_signed(make_app(RecordingHandler()), make_event_body(), at=NOW - timedelta(seconds=age_seconds))

    assert answer.status_code == 400
    assert reason in answer.json()["reason"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[]", b"[" * 100_000, b'{"type":"party"}', b'{"eventId":"evt_1"}']
)
async def test_a_signed_body_of_unknown_type_is_rejected(body: bytes) -> None:
    inbox = RecordingHandler()

    answer = await post_signed(make_app(inbox), body)

    assert answer.status_code == 400
    assert answer.json()["reason"]
    assert inbox.callbacks == inbox.notices == []


async def test_a_challenge_is_answered_if_and_only_if_it_is_signed() -> None:
    app = make_app(RecordingHandler())
    challenge = {"type": "verification", "challenge": "nönce"}

    for _ in range(2):
        answer = await post_signed(app, challenge, message_id="msg_verification_1")
        assert (answer.status_code, answer.json()) == (200, {"challenge": "nönce"})
        assert answer.headers["content-type"] == "application/json"
    assert (await post_signed(app, challenge, secret=OTHER_SECRET)).status_code == 400


async def test_control_envelopes_are_acknowledged_and_noticed_once() -> None:
    inbox = RecordingHandler()
    app = make_app(inbox)

    for _ in range(2):
        gap = await post_signed(app, {"type": "gap", "cursor": "place-9"}, message_id="msg_gap_1")
        end = await post_signed(
            app, {"type": "terminated", "error": {"code": -32011, "message": "NotFound"}}, message_id="msg_terminated_1"
        )
        assert (gap.status_code, end.status_code) == (204, 204)

    assert inbox.notices == [
        Gap(subscription_id="wh_1", cursor="place-9"),
        Terminated(subscription_id="wh_1", code=-32011, message="NotFound"),
    ]
    assert inbox.callbacks == []


async def test_control_envelopes_need_no_hook() -> None:
    app = ReceiverApp([SECRET], clock=lambda: NOW)

    assert (await post_signed(app, {"type": "gap", "cursor": "place-9"})).status_code == 204


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
async def test_only_post_is_allowed(method: str) -> None:
    async with make_client(make_app(RecordingHandler())) as client:
        answer = await client.request(method, "/")

    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_the_largest_body_is_read_and_one_byte_more_is_not() -> None:
    inbox = RecordingHandler()
    frame = len(json.dumps(make_event_body(result="")))

    fits = await post_signed(make_app(inbox), make_event_body(result="x" * (BODY_BYTES_MAX - frame)))
    too_large = await post_signed(make_app(inbox), make_event_body(result="x" * (BODY_BYTES_MAX - frame + 1)))

    assert (fits.status_code, too_large.status_code) == (204, 413)
    assert len(inbox.callbacks) == 1


async def test_an_endless_body_is_rejected_at_the_limit() -> None:
    chunks_sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal chunks_sent
        while True:
            chunks_sent += 1
            yield b"x" * 65_536

    async with make_client(make_app(RecordingHandler())) as client:
        answer = await client.post("/", content=endless())

    assert answer.status_code == 413
    assert chunks_sent <= BODY_BYTES_MAX // 65_536 + 1


async def test_a_sender_that_disconnects_gets_no_response() -> None:
    inbox = RecordingHandler()
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    await make_app(inbox)({"type": "http", "method": "POST", "headers": []}, receive, send)

    assert sent == inbox.callbacks == []


async def test_a_scope_that_is_not_http_is_declined_as_asgi_requires() -> None:
    async def never(*_: Any) -> Any:
        pytest.fail("nothing is to be received or sent")

    with pytest.raises(ValueError, match="HTTP only"):
        await make_app(RecordingHandler())({"type": "websocket"}, never, never)


async def test_a_repeated_message_is_acknowledged_and_handled_once() -> None:
    inbox = RecordingHandler()
    app = make_app(inbox)

    answers = [await post_signed(app, make_event_body(), at=NOW + timedelta(seconds=number)) for number in range(3)]

    assert [answer.status_code for answer in answers] == [204] * 3
    assert len(inbox.callbacks) == 1


async def test_a_handler_without_async_has_handled_a_callback_when_it_returns() -> None:
    handled: list[Callback] = []
    handler: Any = handled.append
    app = ReceiverApp(SECRET, on_callback=handler, clock=lambda: NOW)

    answers = [await post_signed(app, make_event_body()) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [204, 204]
    assert [callback.event_id for callback in handled] == ["evt_1"]


async def test_one_event_is_handled_once_for_each_subscription() -> None:
    inbox = RecordingHandler()
    app = make_app(inbox)

    for subscription_id in ("wh_1", "wh_2", "wh_1"):
        await post_signed(app, make_event_body(subscription_id=subscription_id), subscription_id=subscription_id)

    assert [callback.subscription_id for callback in inbox.callbacks] == ["wh_1", "wh_2"]


async def test_a_callback_that_the_handler_failed_to_process_arrives_with_the_retry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inbox = RecordingHandler(failures=2)
    app = make_app(inbox)

    statuses = [(await post_signed(app, make_event_body())).status_code for _ in range(4)]

    assert statuses == [500, 500, 204, 204]
    assert len(inbox.callbacks) == 1
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "evt_1" in caplog.text
    assert "the inbox is full" in caplog.text
    assert SECRET not in caplog.text
    assert "the.token" not in caplog.text


async def test_messages_that_arrive_together_are_handled_once() -> None:
    inbox = RecordingHandler()
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def slow(callback: Callback) -> None:
        entered.set()
        await go_on.wait()
        await inbox.handle_callback(callback)

    app = ReceiverApp([SECRET], on_callback=slow, clock=lambda: NOW)
    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        posts = [group.create_task(post_signed(app, make_event_body())) for _ in range(10)]
        await entered.wait()
        go_on.set()

    assert [task.result().status_code for task in posts] == [204] * 10
    assert len(inbox.callbacks) == 1


async def test_messages_that_arrive_together_are_each_tried_until_one_is_handled() -> None:
    inbox = RecordingHandler(failures=3)
    app = make_app(inbox)

    answers = await asyncio.gather(*(post_signed(app, make_event_body()) for _ in range(10)))

    assert sorted(answer.status_code for answer in answers) == [204] * 7 + [500] * 3
    assert len(inbox.callbacks) == 1


async def test_a_slow_message_does_not_hold_up_another_call() -> None:
    inbox = RecordingHandler()
    go_on = asyncio.Event()

    async def slow_for_the_first(callback: Callback) -> None:
        if callback.correlation_id == "slow":
            await go_on.wait()
        await inbox.handle_callback(callback)

    app = ReceiverApp([SECRET], on_callback=slow_for_the_first, clock=lambda: NOW)
    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(post_signed(app, make_event_body("evt_1", correlation_id="slow", call_id="call_1")))
        await post_signed(app, make_event_body("evt_2", correlation_id="quick", call_id="call_2"))
        go_on.set()

    assert [callback.correlation_id for callback in inbox.callbacks] == ["quick", "slow"]


async def test_without_a_clock_the_time_is_the_machines() -> None:
    answer = await post_signed(ReceiverApp([SECRET]), make_event_body(), at=datetime(2020, 1, 1, tzinfo=UTC))

    assert "too old" in answer.json()["reason"]


def test_the_public_names_are_sorted_and_there() -> None:
    assert public.__all__ == sorted(public.__all__)
    assert all(hasattr(public, name) for name in public.__all__)


async def test_a_body_that_does_not_arrive_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request counts before its sender is known: a thousand slow ones would keep all callbacks out."""
    monkeypatch.setattr(asgi, "BODY_SECONDS_MAX", 0.0)
    sent: list[Any] = []

    async def receive() -> Any:
        return await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    await ReceiverApp([SECRET])({"type": "http", "method": "POST", "headers": []}, receive, send)

    assert sent[0]["status"] == 408
