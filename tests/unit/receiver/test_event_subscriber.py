"""An agent's subscriptions: made, refreshed before they expire, and ended."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from ringback.receiver import EventRequestError, EventSubscriber, ReceiverApp
from ringback.receiver.event_subscriber import IDLE_SECONDS, NEVER
from ringback.receiver.subscription_results import MalformedResult
from tests.support.clock import ManualClock
from tests.support.signed_posts import post_signed
from tests.support.subscription_server import TTL, URL, EventServer, make_subscriber


async def test_a_subscription_is_asked_for_with_a_secret_of_its_own_that_the_receiver_accepts(
    server: EventServer, subscriber: EventSubscriber
) -> None:
    subscription = await subscriber.subscribe("call.finished", {"tool": "add"}, cursor="5", max_age_seconds=60)

    (params,) = server.sent("events/subscribe")
    secret = params["delivery"].pop("secret")
    assert params == {
        "name": "call.finished",
        "arguments": {"tool": "add"},
        "delivery": {"mode": "webhook", "url": URL},
        "cursor": "5",
        "maxAgeMs": 60_000,
    }
    assert subscriber.registry(subscription.id) == [secret]
    assert (subscription.id, subscription.cursor, subscription.truncated) == ("sub_call.finished", "0", False)


async def test_the_challenge_of_the_server_is_answered_while_the_request_still_waits(
    server: EventServer, subscriber: EventSubscriber
) -> None:
    app, answers = ReceiverApp(subscriber.registry, clock=server.clock.now), list[int]()

    async def challenge(params: Mapping[str, Any]) -> None:
        body = {"type": "verification", "challenge": "n"}
        posted = await post_signed(
            app, body, secret=params["delivery"]["secret"], subscription_id="sub_call.finished", at=server.clock.now()
        )
        answers.append(posted.status_code)

    server.before_response = challenge
    await subscriber.subscribe("call.finished")

    assert answers == [200]


async def test_a_server_that_names_each_refresh_differently_has_one_subscription_that_is_refreshed(
    clock: ManualClock,
) -> None:
    """Against the specification. With the earlier one it would be asked without a pause, for more of them each time."""
    ids = iter(range(1, 10))

    async def request(_: str, __: Mapping[str, Any]) -> Mapping[str, Any]:
        before = (clock.now() + timedelta(seconds=TTL)).isoformat()
        return {"id": f"sub_{next(ids)}", "refreshBefore": before, "cursor": None, "truncated": False}

    subscriber = EventSubscriber(request, url=URL, clock=clock.now, sleep=clock.sleep)
    first = await subscriber.subscribe("call.finished")
    second = await subscriber.refresh(first.id)

    assert [each.id for each in subscriber.subscriptions()] == [second.id] == ["sub_2"]


async def test_a_refused_subscription_leaves_no_secret(server: EventServer, subscriber: EventSubscriber) -> None:
    server.failures = [EventRequestError(-32015, "CallbackEndpointError: no echo", {"reason": "challenge_failed"})]

    with pytest.raises(EventRequestError, match="no echo") as refused:
        await subscriber.subscribe("call.finished")

    assert refused.value.data == {"reason": "challenge_failed"}
    assert subscriber.registry(None) == []
    assert subscriber.subscriptions() == []


@pytest.mark.parametrize(("ttl", "sent"), [(None, "absent"), (90.0, 90_000), (NEVER, None)])
async def test_the_lifetime_is_asked_for(server: EventServer, ttl: float | None, sent: Any) -> None:
    await make_subscriber(server, ttl_seconds=ttl).subscribe("call.finished")

    assert server.sent("events/subscribe")[0].get("ttlMs", "absent") == sent


async def test_a_subscription_is_refreshed_at_half_of_its_lifetime_with_the_same_secret(
    server: EventServer, subscriber: EventSubscriber, clock: ManualClock
) -> None:
    async with subscriber:
        await subscriber.subscribe("call.finished")
        for count in (2, 3):
            clock.advance(TTL / 2 + 1)
            sent = await server.wait_for("events/subscribe", count)

    assert len({params["delivery"]["secret"] for params in sent}) == 1
    assert {params["cursor"] for params in sent[1:]} == {"0"}


async def test_a_subscription_that_has_lapsed_by_a_clock_ahead_of_the_server_s_is_refreshed_every_five_seconds(
    server: EventServer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def ahead() -> datetime:
        return clock.now() + timedelta(seconds=TTL + 7)

    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await clock.sleep(seconds)

    async with EventSubscriber(server.request, url=URL, clock=ahead, sleep=sleep) as subscriber:
        await subscriber.subscribe("call.finished")
        for count in (2, 3):
            await _let_run()
            assert len(server.sent("events/subscribe")) == count - 1
            clock.advance(5)
            await server.wait_for("events/subscribe", count)

    assert set(pauses[1:]) == {5}
    assert [message.partition(",")[0] for message in caplog.messages] == [
        "sub_call.finished lapsed 7 s ago by this machine's clock"
    ]


async def test_a_subscription_is_refreshed_soon_after_a_clock_that_was_ahead_is_set_back(
    server: EventServer, clock: ManualClock
) -> None:
    """Else it would lapse: by the earlier clock, its refresh is due in hours."""
    ahead = timedelta(hours=3)

    async with EventSubscriber(
        server.request, url=URL, clock=lambda: clock.now() + ahead, sleep=clock.sleep
    ) as subscriber:
        await subscriber.subscribe("call.finished")
        await _let_run()
        ahead = timedelta(0)
        clock.advance(IDLE_SECONDS)
        await server.wait_for("events/subscribe", 2)
        await _let_run()
        clock.advance(TTL / 2 - 1)
        await _let_run()

    assert len(server.sent("events/subscribe")) == 2


async def test_a_refresh_that_fails_is_repeated_until_it_succeeds(
    server: EventServer, subscriber: EventSubscriber, clock: ManualClock
) -> None:
    async with subscriber:
        await subscriber.subscribe("call.finished")
        server.failures = [ConnectionError("down"), EventRequestError(-32603, "InternalError: later")]
        clock.advance(TTL / 2 + 1)
        await server.wait_for("events/subscribe", 2)
        for count in (3, 4):
            await _let_run()
            clock.advance(61)
            await server.wait_for("events/subscribe", count)

    assert len(subscriber.subscriptions()) == 1


async def test_a_refresh_whose_response_never_comes_holds_up_no_other_and_is_repeated(
    server: EventServer, subscriber: EventSubscriber, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.receiver.event_subscriber.REFRESH_SECONDS_MAX", 0.01)

    async def never_respond(_: Mapping[str, Any]) -> None:
        server.before_response = None
        await asyncio.Event().wait()

    async with subscriber:
        for name in ("call.finished", "call.input_required"):
            await subscriber.subscribe(name)
        server.before_response = never_respond
        clock.advance(TTL / 2 + 1)
        await server.wait_for("events/subscribe", 4)
        await _let_run()
        clock.advance(61)
        sent = await server.wait_for("events/subscribe", 5)

    assert [params["name"] for params in sent[2:]] == ["call.finished", "call.input_required", "call.finished"]


@pytest.mark.parametrize("message", ["Forbidden: revoked", "Your access was revoked."])
async def test_a_subscription_that_may_not_be_refreshed_is_given_up(
    server: EventServer, subscriber: EventSubscriber, clock: ManualClock, message: str
) -> None:
    """Servers agree on the names of errors and not on their codes, and some send only a code."""
    async with subscriber:
        subscription = await subscriber.subscribe("call.finished")
        server.failures = [EventRequestError(-32012, message)]
        clock.advance(TTL / 2 + 1)
        await server.wait_for("events/subscribe", 2)
        await _let_run()

    assert subscriber.subscriptions() == []
    assert not subscriber.registry.is_bound(subscription.id)


async def test_a_new_secret_is_accepted_before_the_server_has_answered(
    server: EventServer, subscriber: EventSubscriber
) -> None:
    subscription = await subscriber.subscribe("call.finished")
    accepted: list[int] = []

    async def count_secrets(params: Mapping[str, Any]) -> None:
        accepted.append(len(subscriber.registry(subscription.id)))

    server.before_response = count_secrets
    await subscriber.refresh(subscription.id, new_secret=True)

    first, second = (params["delivery"]["secret"] for params in server.sent("events/subscribe"))
    assert accepted == [2]
    assert list(subscriber.registry(subscription.id)) == [second, first]


async def test_refreshes_with_a_new_secret_that_fail_leave_the_secret_with_which_the_server_signs(
    server: EventServer, subscriber: EventSubscriber
) -> None:
    subscription = await subscriber.subscribe("call.finished")
    server.failures = [ConnectionError("gone") for _ in range(5)]
    for _ in range(5):
        with pytest.raises(ConnectionError):
            await subscriber.refresh(subscription.id, new_secret=True)
    first, *offered = (params["delivery"]["secret"] for params in server.sent("events/subscribe"))
    assert list(subscriber.registry(subscription.id)) == [offered[0], first]

    await subscriber.refresh(subscription.id, new_secret=True)
    await subscriber.refresh(subscription.id, new_secret=True)

    *_, granted, newest = (params["delivery"]["secret"] for params in server.sent("events/subscribe"))
    assert set(offered) == {granted}
    assert list(subscriber.registry(subscription.id)) == [newest, granted, first]


@pytest.mark.parametrize(
    "failure",
    [
        None,
        EventRequestError(-32011, "NotFound: no such subscription"),
        EventRequestError(-32000, "NotFound: no such subscription"),
        EventRequestError(-32011, "Subscription unknown"),
        EventRequestError(-32023, "Subscription unknown"),
    ],
)
async def test_an_unsubscribed_subscription_is_forgotten(
    server: EventServer, subscriber: EventSubscriber, failure: EventRequestError | None
) -> None:
    subscription = await subscriber.subscribe("call.finished", {"tool": "add"})
    server.failures = [failure] if failure else []

    await subscriber.unsubscribe(subscription.id)

    assert server.sent("events/unsubscribe") == [
        {"name": "call.finished", "arguments": {"tool": "add"}, "delivery": {"mode": "webhook", "url": URL}}
    ]
    assert subscriber.subscriptions() == []
    assert not subscriber.registry.is_bound(subscription.id)


async def test_an_unsubscribe_waits_for_the_refresh_under_way_which_so_cannot_undo_it(
    server: EventServer, subscriber: EventSubscriber
) -> None:
    subscription = await subscriber.subscribe("call.finished")
    answered = asyncio.Event()

    async def wait_for_answer(_: Mapping[str, Any]) -> None:
        await answered.wait()

    server.before_response = wait_for_answer
    async with asyncio.TaskGroup() as group:
        group.create_task(subscriber.refresh(subscription.id))
        await server.wait_for("events/subscribe", 2)
        group.create_task(subscriber.unsubscribe(subscription.id))
        await _let_run()
        sent_before = len(server.sent("events/unsubscribe"))
        answered.set()

    assert (sent_before, len(server.sent("events/unsubscribe"))) == (0, 1)
    assert subscriber.subscriptions() == []
    assert not subscriber.registry.is_bound(subscription.id)


async def test_a_refresh_that_waits_for_an_unsubscribe_is_not_sent_nor_repeated(
    server: EventServer, subscriber: EventSubscriber, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    answered = asyncio.Event()

    async def wait_for_answer(_: Mapping[str, Any]) -> None:
        await answered.wait()

    async with subscriber, asyncio.TaskGroup() as group:
        subscription = await subscriber.subscribe("call.finished")
        server.before_response = wait_for_answer
        group.create_task(subscriber.unsubscribe(subscription.id))
        await server.wait_for("events/unsubscribe", 1)
        clock.advance(TTL / 2 + 1)
        await _let_run()
        answered.set()
        await _let_run()

    assert len(server.sent("events/subscribe")) == 1
    assert subscriber.subscriptions() == []
    assert caplog.messages == []


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"id": ""},
        {"id": "sub_1", "refreshBefore": "soon"},
        {"id": "sub_1", "refreshBefore": "2026-11-20T17:00:00"},
        {"id": "sub_1", "cursor": 7},
    ],
)
async def test_a_malformed_grant_is_refused(clock: ManualClock, result: dict[str, Any]) -> None:
    async def request(_method: str, _params: Mapping[str, Any]) -> Mapping[str, Any]:
        return result

    subscriber = EventSubscriber(request, url=URL, clock=clock.now)

    with pytest.raises(MalformedResult):
        await subscriber.subscribe("call.finished")

    assert subscriber.registry(None) == []


async def _let_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
