"""What a subscription has missed is polled, also at its end."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ringback.receiver import (
    Callback,
    EventRequestError,
    EventSubscriber,
    Gap,
    NotReady,
    ReceiverApp,
    SQLiteInbox,
    Terminated,
)
from tests.support.clock import ManualClock
from tests.support.inbox_receivers import Handler
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import make_event_body, post_signed
from tests.support.subscription_server import URL, EventServer, make_subscriber


@pytest.mark.parametrize("notice", ["gap", "terminated"])
async def test_what_was_missed_is_polled_and_handled_once(
    server: EventServer, subscriber: EventSubscriber, clock: ManualClock, notice: str
) -> None:
    handled: list[Callback] = []
    notices: list[Gap | Terminated] = []

    async def handle(callback: Callback) -> None:
        handled.append(callback)

    async def note(notice: Gap | Terminated) -> None:
        notices.append(notice)

    app = ReceiverApp(
        subscriber.registry, on_callback=handle, on_notice=note, recover=subscriber.recover, clock=clock.now
    )
    subscription = await subscriber.subscribe("call.finished")
    secret = subscriber.registry(subscription.id)[0]
    server.log = [make_event_body(f"evt_{number}") for number in range(5)]

    async def post(body: Mapping[str, Any], message_id: str) -> int:
        answer = await post_signed(
            app, body, message_id=message_id, secret=secret, subscription_id=subscription.id, at=clock.now()
        )
        return answer.status_code

    assert await post({**server.log[0], "cursor": "0"}, "evt_0") == 204
    error: dict[str, Any] = {"code": -32012, "message": "Forbidden: revoked", "data": {}}
    body: dict[str, Any] = {"type": "gap", "cursor": "1"} if notice == "gap" else {"type": "terminated", "error": error}
    assert await post(body, "msg_notice_1") == 204

    assert [callback.event_id for callback in handled] == [f"evt_{number}" for number in range(5)]
    assert len(notices) == 1
    assert len(subscriber.subscriptions()) == (1 if notice == "gap" else 0)


async def test_an_event_whose_handler_fails_at_the_end_of_a_subscription_is_handled_again(
    server: EventServer, subscriber: EventSubscriber, clock: ManualClock
) -> None:
    """The end is recovered once: afterwards the subscriber has forgotten the subscription, and nothing polls it again."""
    handled: list[str] = []
    failures = ["evt_1"]

    async def handle(callback: Callback) -> None:
        if callback.event_id in failures:
            failures.remove(callback.event_id)
            raise RuntimeError("the agent's database is away")
        handled.append(callback.event_id)

    async def pause(_: float) -> None: ...

    app = ReceiverApp(subscriber.registry, on_callback=handle, recover=subscriber.recover, clock=clock.now, sleep=pause)
    subscription = await subscriber.subscribe("call.finished")
    secret = subscriber.registry(subscription.id)[0]
    server.log = [make_event_body(f"evt_{number}") for number in range(3)]
    ended: dict[str, Any] = {"type": "terminated", "error": {"code": -32012, "message": "Forbidden: revoked"}}

    answer = await post_signed(
        app, ended, message_id="msg_1", secret=secret, subscription_id=subscription.id, at=clock.now()
    )

    assert handled == ["evt_0", "evt_1", "evt_2"]
    assert answer.status_code == 204


async def test_the_gap_of_an_earlier_process_waits_until_the_next_one_has_subscribed_again(
    server: EventServer, subscriber: EventSubscriber, clock: ManualClock, tmp_path: Path
) -> None:
    """The receiver opens its inbox before the application has subscribed, and nothing else says what was missed."""
    subscription = await subscriber.subscribe("call.finished")
    secret = subscriber.registry(subscription.id)[0]
    server.log = [make_event_body(f"evt_{number}") for number in range(3)]
    server.failures = [ConnectionError("killed meanwhile")]
    has_failed = asyncio.Event()

    async def never(_: float) -> None:
        has_failed.set()
        await asyncio.Event().wait()

    def open_receiver(
        current: EventSubscriber, handler: Handler, sleep: Callable[[float], Awaitable[None]]
    ) -> ReceiverApp:
        return ReceiverApp(
            current.registry,
            on_callback=handler.handle,
            inbox=SQLiteInbox(tmp_path / "inbox.db"),
            recover=current.recover,
            clock=clock.now,
            sleep=sleep,
        )

    async with open_receiver(subscriber, Handler(), never) as app:
        gap = {"type": "gap", "cursor": "1"}
        await post_signed(app, gap, secret=secret, subscription_id=subscription.id, at=clock.now())
        await has_failed.wait()

    later, handler, is_waiting, has_subscribed = make_subscriber(server), Handler(), asyncio.Event(), asyncio.Event()

    async def wait_for_subscription(_: float) -> None:
        is_waiting.set()
        await has_subscribed.wait()

    async with asyncio.timeout(WAIT_SECONDS), open_receiver(later, handler, wait_for_subscription):
        await is_waiting.wait()
        await later.subscribe("call.finished")
        has_subscribed.set()
        await handler.wait_until_handled(2)

    assert handler.handled == ["evt_1", "evt_2"]


async def test_a_subscription_that_the_application_makes_again_when_it_learns_of_its_end_stays(
    server: EventServer, subscriber: EventSubscriber, clock: ManualClock
) -> None:
    handled: list[str] = []

    async def handle(callback: Callback) -> None:
        handled.append(callback.event_id)

    async def subscribe_again(_: Gap | Terminated) -> None:
        await subscriber.subscribe("call.finished")

    app = ReceiverApp(
        subscriber.registry,
        on_callback=handle,
        on_notice=subscribe_again,
        recover=subscriber.recover,
        clock=clock.now,
    )
    subscription = await subscriber.subscribe("call.finished")
    secret = subscriber.registry(subscription.id)[0]
    server.log = [make_event_body("evt_0")]
    ended: dict[str, Any] = {"type": "terminated", "error": {"code": -32012, "message": "Forbidden: revoked"}}

    answer = await post_signed(app, ended, secret=secret, subscription_id=subscription.id, at=clock.now())

    assert (answer.status_code, handled) == (204, ["evt_0"])
    assert [each.id for each in subscriber.subscriptions()] == [subscription.id]
    assert subscriber.registry.is_bound(subscription.id)


async def test_a_gap_whose_subscription_is_not_made_again_is_dropped_after_ten_minutes(
    subscriber: EventSubscriber, clock: ManualClock
) -> None:
    gap = Gap(subscription_id="sub_of_an_earlier_process", cursor="1")
    with pytest.raises(NotReady, match="not been made again"):
        _ = [event async for event in subscriber.recover(gap)]

    clock.advance(600)

    assert [event async for event in subscriber.recover(gap)] == []


async def test_a_terminated_subscription_is_recovered_although_the_first_poll_fails(
    server: EventServer, subscriber: EventSubscriber
) -> None:
    subscription = await subscriber.subscribe("call.finished")
    server.log = [make_event_body("evt_0")]
    server.failures = [ConnectionError("down")]
    notice = Terminated(subscription_id=subscription.id, code=-32012, message="Forbidden: revoked")

    with pytest.raises(ConnectionError):
        [event async for event in subscriber.recover(notice)]
    assert subscriber.registry.is_bound(subscription.id), "the sender repeats the notice, and its signature is verified"
    found = [event.event_id async for event in subscriber.recover(notice)]

    assert found == ["evt_0"]
    assert subscriber.subscriptions() == []


@pytest.mark.parametrize(
    "refusal",
    [
        EventRequestError(-32011, "NotFound: There is no event type 'call.finished'.", {"kind": "event"}),
        EventRequestError(-32012, "Forbidden: revoked"),
        EventRequestError(-32014, "Unsupported: no poll"),
        EventRequestError(-32602, "InvalidParams: the arguments do not match the schema"),
    ],
)
async def test_a_subscription_whose_event_type_is_gone_ends_although_it_cannot_be_polled(
    server: EventServer, subscriber: EventSubscriber, refusal: EventRequestError
) -> None:
    """Otherwise its sender would repeat the notice until it gives up, and the handler would run each time."""
    subscription = await subscriber.subscribe("call.finished")
    server.failures = [refusal]
    notice = Terminated(subscription_id=subscription.id, code=refusal.code, message=refusal.message)

    found = [event async for event in subscriber.recover(notice)]

    assert found == []
    assert subscriber.subscriptions() == []
    assert not subscriber.registry.is_bound(subscription.id)


async def test_a_subscription_that_was_made_again_while_its_end_is_recovered_stays(
    server: EventServer, subscriber: EventSubscriber
) -> None:
    """The server answers with the same id."""
    subscription = await subscriber.subscribe("call.finished")
    server.log = [make_event_body("evt_0")]
    notice = Terminated(subscription_id=subscription.id, code=-32012, message="Forbidden: revoked")

    async for _ in subscriber.recover(notice):
        await subscriber.subscribe("call.finished")

    assert [each.id for each in subscriber.subscriptions()] == [subscription.id]
    assert subscriber.registry.is_bound(subscription.id)


@pytest.mark.parametrize("broken", [7, {"eventId": "evt_0"}, {**make_event_body("evt_0"), "timestamp": "yesterday"}])
async def test_an_event_that_is_none_hides_no_other_of_its_poll(
    server: EventServer, subscriber: EventSubscriber, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each poll would fail again, and so would the notice that asks for it, until its sender gives up."""
    subscription = await subscriber.subscribe("call.finished")
    server.log = [broken, make_event_body("evt_1"), make_event_body("evt_2")]

    found = [event.event_id async for event in subscriber.recover(Gap(subscription_id=subscription.id, cursor="0"))]

    assert found == ["evt_1", "evt_2"]
    assert "is left out" in caplog.text


async def test_events_that_the_server_has_not_kept_either_are_logged_as_lost(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def request(method: str, _: Mapping[str, Any]) -> Mapping[str, Any]:
        if method == "events/poll":
            return {"events": [], "cursor": "9", "hasMore": False, "truncated": True}
        return {"id": "sub_1", "refreshBefore": None, "cursor": "0", "truncated": False}

    subscriber = EventSubscriber(request, url=URL, clock=clock.now, sleep=clock.sleep)
    subscription = await subscriber.subscribe("call.finished")
    [event async for event in subscriber.poll_since(subscription, "0")]

    assert "Events of sub_1 were lost" in caplog.text


async def test_a_server_without_polling_leaves_the_gap(server: EventServer, subscriber: EventSubscriber) -> None:
    subscription = await subscriber.subscribe("call.finished")
    server.failures = [EventRequestError(-32601, "Method not found")]

    found = [event async for event in subscriber.recover(Gap(subscription_id=subscription.id, cursor="0"))]

    assert found == []


async def test_a_server_that_promises_more_without_end_is_not_polled_for_ever(clock: ManualClock) -> None:
    async def request(method: str, _: Mapping[str, Any]) -> Mapping[str, Any]:
        if method == "events/poll":
            return {"events": [], "cursor": "same", "hasMore": True}
        return {"id": "sub_1", "refreshBefore": None, "cursor": "same", "truncated": False}

    subscriber = EventSubscriber(request, url=URL, clock=clock.now)
    subscription = await subscriber.subscribe("call.finished")

    assert [event async for event in subscriber.poll_since(subscription, "same")] == []
