"""What upstreams tell unasked becomes events: of those who want to hear it, at most one a second, and never lost."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from ringback.domain.errors import Unavailable
from ringback.domain.event import Event, EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.principal import Principal
from ringback.domain.upstreams import UpstreamChange, Listing, UpstreamProxyPort, UpstreamErrorResponse
from ringback.domain.watches import CHANGE_SUBSCRIPTIONS_TOPIC
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.runner import changes as changes_module
from ringback.runner.changes import ChangeNotifications
from ringback.runner.watchman import RESUBSCRIBE_SECONDS, EVENT_INTERVAL_SECONDS, UpstreamChangeRecorder
from tests.support.builders import a_webhook
from tests.support.clock import StandingClock
from tests.support.engine import Engine, until
from tests.support.examples import ALICE, BOB
from tests.support.stores import UnsteadyStore, sqlite_store
from tests.support.upstreams import WAIT_SECONDS

TOOLS = UpstreamChange(upstream="git", listing=Listing.TOOLS)
PROMPTS = UpstreamChange(upstream="git", listing=Listing.PROMPTS)
CAROL = Principal("carol")
BOOK = UpstreamChange(upstream="git", uri="book://1")


class Observed:
    """The passage, of which only the watching is real enough: what is watched just now, and what the upstream says to it."""

    def __init__(self) -> None:
        self.watched: list[tuple[str, str]] = []
        self.refusals: list[Exception] = []

    @asynccontextmanager
    async def watching(self, upstream: str, uri: str) -> AsyncGenerator[None]:
        if self.refusals:
            raise self.refusals.pop()
        self.watched.append((upstream, uri))
        try:
            yield
        finally:
            self.watched.remove((upstream, uri))


class Post:
    """A watchman at his post, and what he is told."""

    def __init__(self, engine: Engine, clock: StandingClock) -> None:
        self.engine = engine
        self.clock = clock
        self.changes = ChangeNotifications()
        self.passage = Observed()

    @asynccontextmanager
    async def manned(self) -> AsyncGenerator[None]:
        stop = asyncio.Event()
        with self.changes.subscribe_changes() as changes:
            watchman = UpstreamChangeRecorder(
                store=self.engine.store,
                clock=self.clock,
                recorder=self.engine.recorder,
                proxy=cast("Passage", self.passage),
                changes=changes,
            )
            work = asyncio.create_task(watchman.run(stop))
            try:
                yield
            finally:
                stop.set()
                await asyncio.wait_for(work, WAIT_SECONDS)

    async def register(self, *webhooks: Webhook) -> None:
        await self.engine.register(*webhooks)
        await self.ring()

    async def ring(self) -> None:
        async def ring(tx: Any) -> None:
            tx.ring(CHANGE_SUBSCRIPTIONS_TOPIC)

        await self.engine.store.write(ring)

    async def until_rung(self, count: int, principal: Principal = ALICE) -> list[dict[str, Any]]:
        async def rung() -> bool:
            return len(await self.engine.events(principal)) >= count

        await until(rung)
        return [dict(event.data) for event in await self.engine.events(principal)]

    async def until_watched(self, *watched: tuple[str, str]) -> None:
        async def right() -> bool:
            return sorted(self.passage.watched) == sorted(watched)

        await until(right)


@pytest.fixture
async def post(tmp_path: Any) -> AsyncGenerator[Post]:
    clock = StandingClock()
    async with sqlite_store(tmp_path, clock) as store:
        yield Post(Engine(UnsteadyStore(store), clock), clock)


def a_watch(**over: Any) -> Webhook:
    return a_webhook(**({"events": frozenset({EventName.UPSTREAM_CHANGED}), "upstream": "git"} | over))


def a_book_watch(**over: Any) -> Webhook:
    return a_watch(**({"resource_uri": "book://1"} | over))


async def deliveries(post: Post, principal: Principal = ALICE) -> Sequence[str]:
    return [delivery.webhook_id for delivery in await post.engine.deliveries(principal)]


@pytest.mark.requirement("R17")
async def test_everybody_who_watches_an_upstream_hears_that_a_list_changed(post: Post) -> None:
    mine, other, book = a_watch(), a_watch(principal=BOB), a_book_watch(principal=CAROL)
    await post.register(mine, other, book, a_watch(upstream="time"), a_webhook())
    async with post.manned():
        post.changes.publish_change(PROMPTS)

        assert await post.until_rung(1) == [{"upstream": "git", "change": "prompts"}]
        assert await post.until_rung(1, BOB) == [{"upstream": "git", "change": "prompts"}]
    assert list(await deliveries(post)) == [mine.id]
    assert list(await deliveries(post, BOB)) == [other.id]
    assert all(event.data["change"] == "resource" for event in await post.engine.events(CAROL))


@pytest.mark.requirement("R17")
async def test_a_resource_rings_for_the_webhooks_that_name_it_and_is_told_by_the_name_they_gave(post: Post) -> None:
    async with post.manned():
        watch = a_book_watch()
        await post.register(watch, a_watch())
        await post.until_watched(("git", "book://1"))
        post.changes.publish_change(UpstreamChange(upstream="git", uri="book://1/chapter"))
        post.changes.publish_change(BOOK)

        assert await post.until_rung(1) == [{"upstream": "git", "change": "resource", "uri": "book://1"}]
    assert list(await deliveries(post)) == [watch.id]


async def test_what_nobody_watches_leaves_nothing_behind(post: Post) -> None:
    await post.register(a_webhook(), a_watch(upstream="time"))
    async with post.manned():
        post.changes.publish_change(TOOLS)
        post.changes.publish_change(UpstreamChange(upstream="time", listing=Listing.TOOLS))
        await post.until_rung(1)

    assert [event.upstream for event in await post.engine.events()] == ["time"]


async def test_the_same_thing_rings_once_a_second_and_the_last_change_always_does(post: Post) -> None:
    await post.register(a_watch())
    async with post.manned():
        post.changes.publish_change(TOOLS)
        await post.until_rung(1)
        for _ in range(100):
            post.changes.publish_change(TOOLS)
            await asyncio.sleep(0)
        post.changes.publish_change(PROMPTS)

        assert [data["change"] for data in await post.until_rung(2)] == ["tools", "prompts"]
        post.clock.advance(EVENT_INTERVAL_SECONDS)
        assert [data["change"] for data in await post.until_rung(3)] == ["tools", "prompts", "tools"]
        post.clock.advance(EVENT_INTERVAL_SECONDS)
        post.changes.publish_change(PROMPTS)
        assert len(await post.until_rung(4)) == 4


async def test_a_change_that_cannot_be_written_down_is_due_until_it_can(post: Post) -> None:
    await post.register(a_watch())
    cast("UnsteadyStore", post.engine.store).refusals = 2
    async with post.manned():
        post.changes.publish_change(TOOLS)

        async def rung_in_time() -> bool:
            post.clock.advance(EVENT_INTERVAL_SECONDS)
            return len(await post.engine.events()) > 0

        await until(rung_in_time)
    assert [event.data["change"] for event in await post.engine.events()] == ["tools"]


async def test_a_flood_of_resources_pushes_out_no_list_while_the_store_cannot_be_written(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_module, "WAITING_MAX", 2)
    await post.register(a_watch())
    cast("UnsteadyStore", post.engine.store).refusals = 1
    async with post.manned():
        for change in (TOOLS, *(replace(BOOK, uri=f"book://{number}") for number in range(4)), PROMPTS):
            post.changes.publish_change(change)

        async def rung_in_time() -> bool:
            post.clock.advance(EVENT_INTERVAL_SECONDS)
            return len(await post.engine.events()) > 0

        await until(rung_in_time)
    assert [event.data["change"] for event in await post.engine.events()] == ["tools", "prompts"]


async def test_just_what_live_webhooks_name_is_watched(post: Post) -> None:
    await post.register(a_book_watch(principal=BOB))
    async with post.manned():
        await post.until_watched(("git", "book://1"))
        again, another = a_book_watch(), a_watch(resource_uri="book://2")
        await post.register(again, another, a_book_watch(state=WebhookState.DISABLED, resource_uri="book://3"))
        await post.until_watched(("git", "book://1"), ("git", "book://2"))

        await post.engine.store.write(lambda tx: tx.webhooks.delete(again.id))
        await post.engine.store.write(
            lambda tx: tx.webhooks.update(replace(another, state=WebhookState.DISABLED), WebhookPart.STATE)
        )
        await post.ring()
        await post.until_watched(("git", "book://1"))
    assert post.passage.watched == []


async def test_after_a_start_each_watched_resource_rings_once_and_a_new_one_does_not(post: Post) -> None:
    await post.register(a_book_watch())
    async with post.manned():
        assert len(await post.until_rung(1)) == 1
        await post.register(a_watch(resource_uri="book://2"))
        await post.until_watched(("git", "book://1"), ("git", "book://2"))
        post.clock.advance(EVENT_INTERVAL_SECONDS)
        post.changes.publish_change(TOOLS)
        post.changes.publish_change(BOOK)
        await post.until_rung(2)

    assert [event.data.get("uri") for event in await post.engine.events()] == ["book://1", "book://1"]


@pytest.mark.parametrize("refusal", [UpstreamErrorResponse({"code": -32602}), Unavailable("not now")])
async def test_a_resource_that_cannot_be_watched_is_tried_again_and_then_counts_as_changed(
    post: Post, refusal: Exception
) -> None:
    post.passage.refusals = [refusal]
    async with post.manned():
        await post.register(a_book_watch())
        await until(lambda: _tried(post))
        post.clock.advance(RESUBSCRIBE_SECONDS)

        assert len(await post.until_rung(1)) == 1
        await post.until_watched(("git", "book://1"))


async def _tried(post: Post) -> bool:
    return not post.passage.refusals


async def test_the_event_is_in_the_log_for_polls_too(post: Post) -> None:
    await post.register(a_watch())
    async with post.manned():
        post.changes.publish_change(TOOLS)
        await post.until_rung(1)

    where = EventFilter(name=EventName.UPSTREAM_CHANGED)
    found: Sequence[Event] = await post.engine.store.read(lambda tx: tx.events.list_after(ALICE, 0, where, limit=10))
    assert [(event.upstream, event.call_id, event.tool) for event in found] == [("git", None, None)]
