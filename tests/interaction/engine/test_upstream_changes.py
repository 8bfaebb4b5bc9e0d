"""What upstreams tell unasked becomes events: of those who want to hear it, at most one a second, and never lost."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from ringback.domain.change_subscriptions import CHANGE_SUBSCRIPTIONS_TOPIC
from ringback.domain.errors import Unavailable
from ringback.domain.event import Event, EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.principal import Principal
from ringback.domain.upstreams import Listing, UpstreamChange, UpstreamErrorResponse, UpstreamProxyPort
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.leadership import Leadership
from ringback.upstreams.subscriptions import change_notifications as changes_module
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications
from ringback.upstreams.subscriptions.upstream_changes import (
    EVENT_INTERVAL_SECONDS,
    RESUBSCRIBE_SECONDS,
    WATCH_DUTY,
    UpstreamChangeRecorder,
)
from tests.support.builders import make_webhook
from tests.support.clock import ManualClock
from tests.support.engine import Engine, wait_until
from tests.support.examples import ALICE, BOB
from tests.support.stores import FailingStore, open_test_store
from tests.support.upstreams import WAIT_SECONDS

TOOLS = UpstreamChange(upstream="git", listing=Listing.TOOLS)
PROMPTS = UpstreamChange(upstream="git", listing=Listing.PROMPTS)
CAROL = Principal("carol")
BOOK = UpstreamChange(upstream="git", uri="book://1")


class FakeSubscriptions:
    """The passage, of which only the watching is real enough: what is watched just now, and what the upstream says to it."""

    def __init__(self) -> None:
        self.watched: list[tuple[str, str]] = []
        self.refusals: list[Exception] = []

    @asynccontextmanager
    async def subscribe_resource(self, upstream: str, uri: str) -> AsyncGenerator[None]:
        if self.refusals:
            raise self.refusals.pop()
        self.watched.append((upstream, uri))
        try:
            yield
        finally:
            self.watched.remove((upstream, uri))


class PermanentLeadership(Leadership):
    """The only node: it has the duty without a lease, which would run out whenever the test advances the clock."""

    async def run_as_leader(self, work: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        await self._run_until(work, stop.wait())


class UpstreamChangeHarness:
    """A watchman at his post, and what he is told."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.engine = engine
        self.clock = clock
        self.changes = ChangeNotifications()
        self.proxy = FakeSubscriptions()

    @asynccontextmanager
    async def running_recorder(self) -> AsyncGenerator[None]:
        stop = asyncio.Event()
        with self.changes.subscribe_changes() as changes:
            watchman = UpstreamChangeRecorder(
                store=self.engine.store,
                clock=self.clock,
                recorder=self.engine.recorder,
                proxy=cast("UpstreamProxyPort", self.proxy),
                changes=changes,
                leadership=PermanentLeadership(
                    store=self.engine.store, clock=self.clock, owner="alone", duty=WATCH_DUTY
                ),
            )
            work = asyncio.create_task(watchman.run(stop))
            try:
                yield
            finally:
                stop.set()
                await asyncio.wait_for(work, WAIT_SECONDS)

    async def register_webhook(self, *webhooks: Webhook) -> None:
        await self.engine.insert_webhooks(*webhooks)
        await self.publish_change()

    async def publish_change(self) -> None:
        async def ring(tx: Any) -> None:
            tx.notify(CHANGE_SUBSCRIPTIONS_TOPIC)

        await self.engine.store.write(ring)

    async def wait_for_deliveries(self, count: int, principal: Principal = ALICE) -> list[dict[str, Any]]:
        async def is_delivered() -> bool:
            return len(await self.engine.read_events(principal)) >= count

        await wait_until(is_delivered)
        return [dict(event.data) for event in await self.engine.read_events(principal)]

    async def wait_until_subscribed(self, *watched: tuple[str, str]) -> None:
        async def is_subscribed() -> bool:
            return sorted(self.proxy.watched) == sorted(watched)

        await wait_until(is_subscribed)


@pytest.fixture
async def post(tmp_path: Any) -> AsyncGenerator[UpstreamChangeHarness]:
    clock = ManualClock()
    async with open_test_store(tmp_path, clock) as store:
        yield UpstreamChangeHarness(Engine(FailingStore(store), clock), clock)


def make_change_subscription(**over: Any) -> Webhook:
    return make_webhook(**({"events": frozenset({EventName.UPSTREAM_CHANGED}), "upstream": "git"} | over))


def make_book_subscription(**over: Any) -> Webhook:
    return make_change_subscription(**({"resource_uri": "book://1"} | over))


async def deliveries(post: UpstreamChangeHarness, principal: Principal = ALICE) -> Sequence[str]:
    return [delivery.webhook_id for delivery in await post.engine.read_deliveries(principal)]


@pytest.mark.requirement("R17")
async def test_every_subscribed_principal_gets_an_event_when_a_list_changes(post: UpstreamChangeHarness) -> None:
    mine, other, book = (
        make_change_subscription(),
        make_change_subscription(principal=BOB),
        make_book_subscription(principal=CAROL),
    )
    await post.register_webhook(mine, other, book, make_change_subscription(upstream="time"), make_webhook())
    async with post.running_recorder():
        post.changes.publish_change(PROMPTS)

        assert await post.wait_for_deliveries(1) == [{"upstream": "git", "change": "prompts"}]
        assert await post.wait_for_deliveries(1, BOB) == [{"upstream": "git", "change": "prompts"}]
    assert list(await deliveries(post)) == [mine.id]
    assert list(await deliveries(post, BOB)) == [other.id]
    assert all(event.data["change"] == "resource" for event in await post.engine.read_events(CAROL))


@pytest.mark.requirement("R17")
async def test_a_resource_change_is_sent_to_webhooks_that_name_it_under_the_name_they_gave(
    post: UpstreamChangeHarness,
) -> None:
    async with post.running_recorder():
        watch = make_book_subscription()
        await post.register_webhook(watch, make_change_subscription())
        await post.wait_until_subscribed(("git", "book://1"))
        post.changes.publish_change(UpstreamChange(upstream="git", uri="book://1/chapter"))
        post.changes.publish_change(BOOK)

        assert await post.wait_for_deliveries(1) == [{"upstream": "git", "change": "resource", "uri": "book://1"}]
    assert list(await deliveries(post)) == [watch.id]


async def test_changes_without_a_subscription_store_nothing(post: UpstreamChangeHarness) -> None:
    await post.register_webhook(make_webhook(), make_change_subscription(upstream="time"))
    async with post.running_recorder():
        post.changes.publish_change(TOOLS)
        post.changes.publish_change(UpstreamChange(upstream="time", listing=Listing.TOOLS))
        await post.wait_for_deliveries(1)

    assert [event.upstream for event in await post.engine.read_events()] == ["time"]


async def test_a_repeated_change_is_sent_once_a_second_and_the_last_one_always(post: UpstreamChangeHarness) -> None:
    await post.register_webhook(make_change_subscription())
    async with post.running_recorder():
        post.changes.publish_change(TOOLS)
        await post.wait_for_deliveries(1)
        for _ in range(100):
            post.changes.publish_change(TOOLS)
            await asyncio.sleep(0)
        post.changes.publish_change(PROMPTS)

        assert [data["change"] for data in await post.wait_for_deliveries(2)] == ["tools", "prompts"]
        post.clock.advance(EVENT_INTERVAL_SECONDS)
        assert [data["change"] for data in await post.wait_for_deliveries(3)] == ["tools", "prompts", "tools"]
        post.clock.advance(EVENT_INTERVAL_SECONDS)
        post.changes.publish_change(PROMPTS)
        assert len(await post.wait_for_deliveries(4)) == 4


async def test_a_change_that_cannot_be_written_down_is_due_until_it_can(post: UpstreamChangeHarness) -> None:
    await post.register_webhook(make_change_subscription())
    cast("FailingStore", post.engine.store).refusals = 2
    async with post.running_recorder():
        post.changes.publish_change(TOOLS)

        async def rung_in_time() -> bool:
            post.clock.advance(EVENT_INTERVAL_SECONDS)
            return len(await post.engine.read_events()) > 0

        await wait_until(rung_in_time)
    assert [event.data["change"] for event in await post.engine.read_events()] == ["tools"]


async def test_a_flood_of_resources_pushes_out_no_list_while_the_store_cannot_be_written(
    post: UpstreamChangeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_module, "QUEUED_RESOURCES_MAX", 2)
    await post.register_webhook(make_change_subscription())
    cast("FailingStore", post.engine.store).refusals = 1
    async with post.running_recorder():
        for change in (TOOLS, *(replace(BOOK, uri=f"book://{number}") for number in range(4)), PROMPTS):
            post.changes.publish_change(change)

        async def rung_in_time() -> bool:
            post.clock.advance(EVENT_INTERVAL_SECONDS)
            return len(await post.engine.read_events()) > 0

        await wait_until(rung_in_time)
    assert [event.data["change"] for event in await post.engine.read_events()] == ["tools", "prompts"]


async def test_only_resources_named_by_active_webhooks_are_subscribed(post: UpstreamChangeHarness) -> None:
    await post.register_webhook(make_book_subscription(principal=BOB))
    async with post.running_recorder():
        await post.wait_until_subscribed(("git", "book://1"))
        again, another = make_book_subscription(), make_change_subscription(resource_uri="book://2")
        await post.register_webhook(
            again, another, make_book_subscription(state=WebhookState.DISABLED, resource_uri="book://3")
        )
        await post.wait_until_subscribed(("git", "book://1"), ("git", "book://2"))

        await post.engine.store.write(lambda tx: tx.webhooks.delete(again.id))
        await post.engine.store.write(
            lambda tx: tx.webhooks.update(replace(another, state=WebhookState.DISABLED), WebhookPart.STATE)
        )
        await post.publish_change()
        await post.wait_until_subscribed(("git", "book://1"))
    assert post.proxy.watched == []


async def test_after_a_start_each_subscribed_resource_is_sent_once_and_a_new_one_is_not(
    post: UpstreamChangeHarness,
) -> None:
    await post.register_webhook(make_book_subscription())
    async with post.running_recorder():
        assert len(await post.wait_for_deliveries(1)) == 1
        await post.register_webhook(make_change_subscription(resource_uri="book://2"))
        await post.wait_until_subscribed(("git", "book://1"), ("git", "book://2"))
        post.clock.advance(EVENT_INTERVAL_SECONDS)
        post.changes.publish_change(TOOLS)
        post.changes.publish_change(BOOK)
        await post.wait_for_deliveries(2)

    assert [event.data.get("uri") for event in await post.engine.read_events()] == ["book://1", "book://1"]


@pytest.mark.parametrize("refusal", [UpstreamErrorResponse({"code": -32602}), Unavailable("not now")])
async def test_a_resource_subscription_that_fails_is_retried_and_then_counts_as_changed(
    post: UpstreamChangeHarness, refusal: Exception
) -> None:
    post.proxy.refusals = [refusal]
    async with post.running_recorder():
        await post.register_webhook(make_book_subscription())
        await wait_until(lambda: count_attempts(post))
        post.clock.advance(RESUBSCRIBE_SECONDS)

        assert len(await post.wait_for_deliveries(1)) == 1
        await post.wait_until_subscribed(("git", "book://1"))


async def count_attempts(post: UpstreamChangeHarness) -> bool:
    return not post.proxy.refusals


async def test_the_event_is_in_the_log_for_polls_too(post: UpstreamChangeHarness) -> None:
    await post.register_webhook(make_change_subscription())
    async with post.running_recorder():
        post.changes.publish_change(TOOLS)
        await post.wait_for_deliveries(1)

    where = EventFilter(name=EventName.UPSTREAM_CHANGED)
    found: Sequence[Event] = await post.engine.store.read(lambda tx: tx.events.list_after(ALICE, 0, where, limit=10))
    assert [(event.upstream, event.call_id, event.tool) for event in found] == [("git", None, None)]
