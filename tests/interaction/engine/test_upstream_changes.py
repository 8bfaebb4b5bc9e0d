"""Change notifications of upstreams become events for subscribed webhooks: at most one a second, and none is lost."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from ringback.domain.change_subscriptions import CHANGE_SUBSCRIPTIONS_TOPIC
from ringback.domain.clock import seconds
from ringback.domain.errors import RowsLocked, Unavailable
from ringback.domain.event import Event, EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.roles import CHANGES_DUTY
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.domain.upstreams import Listing, UpstreamChange, UpstreamErrorResponse, UpstreamProxyPort
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.leadership import Leadership
from ringback.notifier.recorder import Recorder
from ringback.upstreams.subscriptions import change_notifications as changes_module
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications
from ringback.upstreams.subscriptions.upstream_changes import (
    EVENT_INTERVAL_SECONDS,
    RESUBSCRIBE_SECONDS,
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
    """The subscriptions to resources that are open now. `refusals` are raised, the last one first."""

    def __init__(self) -> None:
        self.open_subscriptions: list[tuple[str, str]] = []
        self.refusals: list[Exception] = []
        self.owned_upstreams: set[str] = set()
        """Each principal has a connection of its own to these."""
        self.listeners: list[tuple[str, Principal]] = []

    def get_owner(self, upstream: str, principal: Principal) -> Principal:
        return principal if upstream in self.owned_upstreams else SHARED_OWNER

    @contextmanager
    def subscribe_changes(self, upstream: str, *, principal: Principal, uris: Collection[str]) -> Generator[None]:
        assert not uris, "nothing reads these changes"
        self.listeners.append((upstream, principal))
        yield
        self.listeners.remove((upstream, principal))

    @asynccontextmanager
    async def subscribe_resource(self, upstream: str, uri: str, *, principal: Principal) -> AsyncGenerator[None]:
        if self.refusals:
            raise self.refusals.pop()
        opened = (upstream, uri if principal == SHARED_OWNER else f"{uri} of {principal}")
        self.open_subscriptions.append(opened)
        try:
            yield
        finally:
            self.open_subscriptions.remove(opened)


class PermanentLeadership(Leadership):
    """The only node: it has the duty without a lease, which would run out whenever the test advances the clock."""

    async def run_as_leader(self, work: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        await self._run_until(work, stop.wait())


class UpstreamChangeHarness:
    """An `UpstreamChangeRecorder` with its change notifications and its subscriptions."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.engine = engine
        self.clock = clock
        self.changes = ChangeNotifications()
        self.proxy = FakeSubscriptions()
        self.recorder = engine.recorder

    @asynccontextmanager
    async def running_recorder(self) -> AsyncGenerator[None]:
        stop = asyncio.Event()
        with self.changes.subscribe_changes(principal=None) as changes:
            recorder = UpstreamChangeRecorder(
                store=self.engine.store,
                clock=self.clock,
                recorder=self.recorder,
                proxy=cast("UpstreamProxyPort", self.proxy),
                changes=changes,
                leadership=PermanentLeadership(
                    store=self.engine.store, clock=self.clock, owner="alone", duty=CHANGES_DUTY
                ),
            )
            work = asyncio.create_task(recorder.run(stop))
            try:
                yield
            finally:
                stop.set()
                await asyncio.wait_for(work, WAIT_SECONDS)

    async def register_webhook(self, *webhooks: Webhook) -> None:
        await self.engine.insert_webhooks(*webhooks)
        await self.publish_change()

    async def publish_change(self) -> None:
        async def notify(tx: Any) -> None:
            tx.notify(CHANGE_SUBSCRIPTIONS_TOPIC)

        await self.engine.store.write(notify)

    async def wait_for_deliveries(self, count: int, principal: Principal = ALICE) -> list[dict[str, Any]]:
        async def is_delivered() -> bool:
            return len(await self.engine.read_events(principal)) >= count

        await wait_until(is_delivered)
        return [dict(event.data) for event in await self.engine.read_events(principal)]

    async def wait_until_subscribed(self, *open_subscriptions: tuple[str, str]) -> None:
        async def is_subscribed() -> bool:
            return sorted(self.proxy.open_subscriptions) == sorted(open_subscriptions)

        await wait_until(is_subscribed)


@pytest.fixture
async def harness(tmp_path: Any) -> AsyncGenerator[UpstreamChangeHarness]:
    clock = ManualClock()
    async with open_test_store(tmp_path, clock) as store:
        yield UpstreamChangeHarness(Engine(FailingStore(store), clock), clock)


def make_change_subscription(**over: Any) -> Webhook:
    return make_webhook(**({"events": frozenset({EventName.UPSTREAM_CHANGED}), "upstream": "git"} | over))


def make_book_subscription(**over: Any) -> Webhook:
    return make_change_subscription(**({"resource_uri": "book://1"} | over))


async def deliveries(harness: UpstreamChangeHarness, principal: Principal = ALICE) -> Sequence[str]:
    return [delivery.webhook_id for delivery in await harness.engine.read_deliveries(principal)]


@pytest.mark.requirement("R17")
async def test_every_subscribed_principal_gets_an_event_when_a_list_changes(harness: UpstreamChangeHarness) -> None:
    mine, other, book = (
        make_change_subscription(),
        make_change_subscription(principal=BOB),
        make_book_subscription(principal=CAROL),
    )
    await harness.register_webhook(mine, other, book, make_change_subscription(upstream="time"), make_webhook())
    async with harness.running_recorder():
        harness.changes.publish_change(PROMPTS)

        assert await harness.wait_for_deliveries(1) == [{"upstream": "git", "change": "prompts"}]
        assert await harness.wait_for_deliveries(1, BOB) == [{"upstream": "git", "change": "prompts"}]
    assert list(await deliveries(harness)) == [mine.id]
    assert list(await deliveries(harness, BOB)) == [other.id]
    assert all(event.data["change"] == "resource" for event in await harness.engine.read_events(CAROL))


@pytest.mark.requirement("R17")
async def test_a_resource_change_is_sent_to_webhooks_that_name_it_under_the_name_they_gave(
    harness: UpstreamChangeHarness,
) -> None:
    async with harness.running_recorder():
        webhook = make_book_subscription()
        await harness.register_webhook(webhook, make_change_subscription())
        await harness.wait_until_subscribed(("git", "book://1"))
        harness.changes.publish_change(UpstreamChange(upstream="git", uri="book://1/chapter"))
        harness.changes.publish_change(BOOK)

        assert await harness.wait_for_deliveries(1) == [{"upstream": "git", "change": "resource", "uri": "book://1"}]
    assert list(await deliveries(harness)) == [webhook.id]


async def test_a_change_while_the_clock_is_far_ahead_is_sent_to_a_webhook_that_has_not_expired(
    harness: UpstreamChangeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook = make_change_subscription(expires_at=harness.clock.now() + seconds(3600))
    book = make_book_subscription(expires_at=harness.clock.now() + seconds(3600))
    confirmed = harness.clock.now()
    monkeypatch.setattr(harness.clock, "confirmed_now", lambda: confirmed)
    harness.clock.advance(30 * 86400)
    async with harness.running_recorder():
        await harness.register_webhook(webhook, book)
        await harness.wait_until_subscribed(("git", "book://1"))
        harness.changes.publish_change(PROMPTS)

        assert {"upstream": "git", "change": "prompts"} in await harness.wait_for_deliveries(1)
    assert webhook.id in await deliveries(harness)


async def test_changes_without_a_subscription_store_nothing(harness: UpstreamChangeHarness) -> None:
    await harness.register_webhook(make_webhook(), make_change_subscription(upstream="time"))
    async with harness.running_recorder():
        harness.changes.publish_change(TOOLS)
        harness.changes.publish_change(UpstreamChange(upstream="time", listing=Listing.TOOLS))
        await harness.wait_for_deliveries(1)

    assert [event.upstream for event in await harness.engine.read_events()] == ["time"]


async def test_a_repeated_change_is_sent_once_a_second_and_the_last_one_always(harness: UpstreamChangeHarness) -> None:
    await harness.register_webhook(make_change_subscription())
    async with harness.running_recorder():
        harness.changes.publish_change(TOOLS)
        await harness.wait_for_deliveries(1)
        for _ in range(100):
            harness.changes.publish_change(TOOLS)
            await asyncio.sleep(0)
        harness.changes.publish_change(PROMPTS)

        assert [data["change"] for data in await harness.wait_for_deliveries(2)] == ["tools", "prompts"]
        harness.clock.advance(EVENT_INTERVAL_SECONDS)
        assert [data["change"] for data in await harness.wait_for_deliveries(3)] == ["tools", "prompts", "tools"]
        harness.clock.advance(EVENT_INTERVAL_SECONDS)
        harness.changes.publish_change(PROMPTS)
        assert len(await harness.wait_for_deliveries(4)) == 4


async def test_a_change_that_cannot_be_written_down_is_due_until_it_can(harness: UpstreamChangeHarness) -> None:
    await harness.register_webhook(make_change_subscription())
    cast("FailingStore", harness.engine.store).refusals = 2
    async with harness.running_recorder():
        harness.changes.publish_change(TOOLS)

        async def is_recorded() -> bool:
            harness.clock.advance(EVENT_INTERVAL_SECONDS)
            return len(await harness.engine.read_events()) > 0

        await wait_until(is_recorded)
    assert [event.data["change"] for event in await harness.engine.read_events()] == ["tools"]


class LockableRecorder:
    """A recorder that finds the logs of some principals locked by another unit."""

    def __init__(self, recorder: Recorder, *locked: Principal) -> None:
        self._recorder = recorder
        self.locked = {*locked}

    async def record_upstream_change(self, tx: Transaction, principal: Principal, upstream: str, **change: Any) -> None:
        if principal in self.locked:
            raise RowsLocked("The log is locked.", waited_seconds=0.0)
        await self._recorder.record_upstream_change(tx, principal, upstream, **change)


@pytest.mark.requirement("R35")
async def test_a_log_that_stays_locked_keeps_a_change_from_no_other_principal(harness: UpstreamChangeHarness) -> None:
    """All logs were in one unit, so no principal was notified of any change while one of them was locked."""
    lockable = LockableRecorder(harness.engine.recorder, ALICE)
    harness.recorder = cast("Recorder", lockable)
    await harness.register_webhook(make_change_subscription(), make_change_subscription(principal=BOB))
    async with harness.running_recorder():
        harness.changes.publish_change(TOOLS)
        await harness.wait_for_deliveries(1, BOB)
        lockable.locked.clear()

        async def is_recorded() -> bool:
            harness.clock.advance(EVENT_INTERVAL_SECONDS)
            return len(await harness.engine.read_events()) > 0

        await wait_until(is_recorded)
    for principal in (ALICE, BOB):
        assert [event.data["change"] for event in await harness.engine.read_events(principal)] == ["tools"]


async def test_a_flood_of_resources_pushes_out_no_list_while_the_store_cannot_be_written(
    harness: UpstreamChangeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_module, "QUEUED_RESOURCES_MAX", 2)
    await harness.register_webhook(make_change_subscription())
    cast("FailingStore", harness.engine.store).refusals = 1
    async with harness.running_recorder():
        for change in (TOOLS, *(replace(BOOK, uri=f"book://{number}") for number in range(4)), PROMPTS):
            harness.changes.publish_change(change)

        async def is_recorded() -> bool:
            harness.clock.advance(EVENT_INTERVAL_SECONDS)
            return len(await harness.engine.read_events()) > 0

        await wait_until(is_recorded)
    assert [event.data["change"] for event in await harness.engine.read_events()] == ["tools", "prompts"]


async def test_only_resources_named_by_active_webhooks_are_subscribed(harness: UpstreamChangeHarness) -> None:
    await harness.register_webhook(make_book_subscription(principal=BOB))
    async with harness.running_recorder():
        await harness.wait_until_subscribed(("git", "book://1"))
        again, another = make_book_subscription(), make_change_subscription(resource_uri="book://2")
        await harness.register_webhook(
            again, another, make_book_subscription(state=WebhookState.DISABLED, resource_uri="book://3")
        )
        await harness.wait_until_subscribed(("git", "book://1"), ("git", "book://2"))

        await harness.engine.store.write(lambda tx: tx.webhooks.delete(again.id))
        await harness.engine.store.write(
            lambda tx: tx.webhooks.update(replace(another, state=WebhookState.DISABLED), WebhookPart.STATE)
        )
        await harness.publish_change()
        await harness.wait_until_subscribed(("git", "book://1"))
    assert harness.proxy.open_subscriptions == []


async def test_after_a_start_each_subscribed_resource_is_sent_once_and_a_new_one_is_not(
    harness: UpstreamChangeHarness,
) -> None:
    await harness.register_webhook(make_book_subscription())
    async with harness.running_recorder():
        assert len(await harness.wait_for_deliveries(1)) == 1
        await harness.register_webhook(make_change_subscription(resource_uri="book://2"))
        await harness.wait_until_subscribed(("git", "book://1"), ("git", "book://2"))
        harness.clock.advance(EVENT_INTERVAL_SECONDS)
        harness.changes.publish_change(TOOLS)
        harness.changes.publish_change(BOOK)
        await harness.wait_for_deliveries(2)

    assert [event.data.get("uri") for event in await harness.engine.read_events()] == ["book://1", "book://1"]


@pytest.mark.parametrize("refusal", [UpstreamErrorResponse({"code": -32602}), Unavailable("not now")])
async def test_a_resource_subscription_that_fails_is_retried_and_then_counts_as_changed(
    harness: UpstreamChangeHarness, refusal: Exception
) -> None:
    harness.proxy.refusals = [refusal]
    async with harness.running_recorder():
        await harness.register_webhook(make_book_subscription())
        await wait_until(lambda: count_attempts(harness))
        harness.clock.advance(RESUBSCRIBE_SECONDS)

        assert len(await harness.wait_for_deliveries(1)) == 1
        await harness.wait_until_subscribed(("git", "book://1"))


async def count_attempts(harness: UpstreamChangeHarness) -> bool:
    return not harness.proxy.refusals


async def test_the_event_is_in_the_log_for_polls_too(harness: UpstreamChangeHarness) -> None:
    await harness.register_webhook(make_change_subscription())
    async with harness.running_recorder():
        harness.changes.publish_change(TOOLS)
        await harness.wait_for_deliveries(1)

    where = EventFilter(name=EventName.UPSTREAM_CHANGED)
    found: Sequence[Event] = await harness.engine.store.read(lambda tx: tx.events.list_after(ALICE, 0, where, limit=10))
    assert [(event.upstream, event.call_id, event.tool) for event in found] == [("git", None, None)]


async def test_a_change_on_the_connection_of_a_principal_is_an_event_of_that_principal_only(
    harness: UpstreamChangeHarness,
) -> None:
    harness.proxy.owned_upstreams = {"git"}
    for principal in (ALICE, BOB):
        await harness.register_webhook(
            make_change_subscription(principal=principal), make_book_subscription(principal=principal)
        )
    async with harness.running_recorder():
        await harness.wait_until_subscribed(("git", f"book://1 of {ALICE}"), ("git", f"book://1 of {BOB}"))
        assert sorted(harness.proxy.listeners) == [("git", ALICE), ("git", BOB)], "their connections stay open"
        first = {principal: await harness.wait_for_deliveries(1, principal) for principal in (ALICE, BOB)}
        harness.changes.publish_change(replace(PROMPTS, owner=ALICE))
        changes = await harness.wait_for_deliveries(2)

    assert [change["change"] for change in changes] == ["resource", "prompts"]
    assert [dict(event.data) for event in await harness.engine.read_events(BOB)] == first[BOB]
