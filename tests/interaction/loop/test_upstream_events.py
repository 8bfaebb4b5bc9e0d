"""Events of an upstream reach webhooks and the log: the whole service, a real upstream with MCP Events, a real receiver."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ringback.bootstrap import Environment
from ringback.client import RingbackClient
from ringback.domain.ports import Store
from ringback.upstreams.events.event_frames import QUEUED_FRAMES_MAX, EventFrames
from tests.support.application import (
    SECRET,
    CallbackReceiver,
    RunningApplication,
    running_application,
    serving_callbacks,
)
from tests.support.engine import wait_until
from tests.support.event_upstream import EVENT_NAME, LOG_NAME, UPSTREAM_NAME, EventUpstream
from tests.support.stores import StoreWithWaitingUnits
from tests.support.upstreams import WAIT_SECONDS, make_http_config, serving

pytestmark = pytest.mark.requirement("R17")


@asynccontextmanager
async def running_with_events(
    folder: Path, upstream: EventUpstream, era: str = "modern", *, environment: Environment | None = None
) -> AsyncGenerator[tuple[RunningApplication, CallbackReceiver]]:
    """The service in front of this upstream, and a receiver."""
    async with (
        serving(upstream.app(era)) as server,
        serving_callbacks() as phone,
        running_application(
            folder, make_http_config(server.url, name=UPSTREAM_NAME), environment=environment
        ) as ringback,
    ):
        yield ringback, phone


async def wait_until_listed(agent: RingbackClient, name: str = LOG_NAME) -> None:
    async def is_listed() -> bool:
        return name in [each.name for each in await agent.event_types()]

    await wait_until(is_listed)


async def register(agent: RingbackClient, phone: CallbackReceiver, **options: Any) -> str:
    await wait_until_listed(agent)
    return (await agent.register_webhook(phone.url, secret=SECRET, events=[LOG_NAME], **options)).id


async def wait_for_callbacks(phone: CallbackReceiver, count: int) -> list[str]:
    async def often_enough() -> bool:
        return len(phone.callbacks) >= count

    await wait_until(often_enough)
    return [callback.event_id for callback in phone.callbacks]


@pytest.mark.parametrize("modes", [("poll",), ("push",), ("poll", "push", "webhook")])
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_an_upstreams_event_is_in_the_log_and_in_a_callback_under_the_same_id(
    tmp_path: Path, era: str, modes: tuple[str, ...]
) -> None:
    upstream = EventUpstream(modes=modes)
    async with running_with_events(tmp_path, upstream, era) as (ringback, phone):
        alice, bob = await ringback.create_agent_client("alice"), await ringback.create_agent_client("bob")
        await register(alice, phone)
        upstream.emit(EVENT_NAME, {"repo": "a"})

        assert await wait_for_callbacks(phone, 1) == [f"{UPSTREAM_NAME}:e1"]
        (event,) = [each async for each in alice.events()]
        assert (event.event_id, event.name, event.data) == (f"{UPSTREAM_NAME}:e1", LOG_NAME, {"repo": "a"})
        assert [each async for each in bob.events()] == []
        assert (len(upstream.streams) > 0) is ("push" in modes)


async def test_what_happens_while_the_service_is_down_arrives_after_its_start(tmp_path: Path) -> None:
    upstream = EventUpstream()
    async with serving(upstream.app()) as server, serving_callbacks() as phone:
        config = make_http_config(server.url, name=UPSTREAM_NAME)
        async with running_application(tmp_path, config) as ringback:
            await register(await ringback.create_agent_client("alice"), phone)
            upstream.emit(EVENT_NAME, {"number": 1})
            await wait_for_callbacks(phone, 1)
        upstream.emit(EVENT_NAME, {"number": 2})
        upstream.emit(EVENT_NAME, {"number": 3})
        async with running_application(tmp_path, config):
            assert await wait_for_callbacks(phone, 3) == [f"{UPSTREAM_NAME}:e{number}" for number in (1, 2, 3)]


async def test_two_principals_and_their_webhooks_are_one_following(tmp_path: Path) -> None:
    upstream = EventUpstream(modes=["push"])
    async with running_with_events(tmp_path, upstream) as (ringback, phone):
        for name in ("alice", "bob"):
            agent = await ringback.create_agent_client(name)
            await register(agent, phone)
            await register(agent, phone, description="another")
        upstream.emit(EVENT_NAME, {})

        assert await wait_for_callbacks(phone, 4) == [f"{UPSTREAM_NAME}:e1"] * 4
        assert len(upstream.streams) == 1


async def test_an_upstream_that_is_away_is_followed_again_from_where_it_was(tmp_path: Path) -> None:
    upstream = EventUpstream(modes=["push"])
    async with (
        serving(upstream.app()) as server,
        serving_callbacks() as phone,
        running_application(tmp_path, make_http_config(server.url, name=UPSTREAM_NAME)) as ringback,
    ):
        await register(await ringback.create_agent_client("alice"), phone)
        await asyncio.wait_for(upstream.wait_until_followed(), WAIT_SECONDS)
        server.drop_connections()
        upstream.emit(EVENT_NAME, {})
        upstream.emit(EVENT_NAME, {})

        assert await wait_for_callbacks(phone, 2) == [f"{UPSTREAM_NAME}:e1", f"{UPSTREAM_NAME}:e2"]


async def test_an_upstream_that_repeats_an_id_makes_one_event(tmp_path: Path) -> None:
    upstream = EventUpstream()
    async with running_with_events(tmp_path, upstream) as (ringback, phone):
        alice = await ringback.create_agent_client("alice")
        await register(alice, phone)
        for number in range(5):
            upstream.emit(EVENT_NAME, {"number": number}, event_id="same")
        upstream.emit(EVENT_NAME, {}, event_id="last")

        assert await wait_for_callbacks(phone, 2) == [f"{UPSTREAM_NAME}:same", f"{UPSTREAM_NAME}:last"]
        assert len([each async for each in alice.events()]) == 2


async def test_an_event_type_that_an_upstream_adds_is_offered_at_once(tmp_path: Path) -> None:
    upstream = EventUpstream()
    async with running_with_events(tmp_path, upstream) as (ringback, phone):
        alice = await ringback.create_agent_client("alice")
        await wait_until_listed(alice)
        upstream.add_event_type("pr.closed")
        await wait_until_listed(alice, f"{UPSTREAM_NAME}/pr.closed")

        await alice.register_webhook(phone.url, secret=SECRET, events=[f"{UPSTREAM_NAME}/pr.closed"])
        upstream.emit("pr.closed", {})

        assert await wait_for_callbacks(phone, 1) == [f"{UPSTREAM_NAME}:e1"]


async def test_a_gap_of_the_upstream_reaches_webhooks_and_polls(tmp_path: Path) -> None:
    upstream = EventUpstream(modes=["poll"])
    async with running_with_events(tmp_path, upstream) as (ringback, phone):
        alice = await ringback.create_agent_client("alice")
        await register(alice, phone)
        upstream.emit(EVENT_NAME, {})
        await wait_for_callbacks(phone, 1)

        upstream.emit("another.name", {})
        upstream.lost_before = len(upstream.log) + 5
        for _ in range(6):
            upstream.emit(EVENT_NAME, {})
        await wait_for_callbacks(phone, 2)

        kinds = [each.kind async for each in alice.deliveries()]
        assert sorted(kinds) == ["event", "event", "gap"]
        events = [each async for each in alice.events()]
        assert [each.name for each in events] == [LOG_NAME, "upstream.gap", LOG_NAME]
        assert events[1].data == {"upstream": UPSTREAM_NAME, "event": LOG_NAME}


async def test_a_burst_of_a_stream_without_cursors_in_its_events_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its first events are being stored, the service stops reading the response, and no queue overflows."""
    upstream = EventUpstream(modes=["push"])
    upstream.sends_event_cursors = False
    count = 2 * QUEUED_FRAMES_MAX + 20
    stores: list[StoreWithWaitingUnits] = []
    pauses = count_pauses(monkeypatch)

    def hold_pages(store: Store) -> Store:
        stores.append(StoreWithWaitingUnits(store, "write_all"))
        return stores[-1]

    async with running_with_events(tmp_path, upstream, environment=Environment(wrap_store=hold_pages)) as (
        ringback,
        phone,
    ):
        alice = await ringback.create_agent_client("alice")
        await register(alice, phone)
        await asyncio.wait_for(upstream.wait_until_followed(), WAIT_SECONDS)
        for number in range(count):
            upstream.emit(EVENT_NAME, {"number": number})

        async def is_paused() -> bool:
            return pauses["begun"] > pauses["ended"]

        await wait_until(is_paused)
        stores[0].released.set()
        await wait_for_callbacks(phone, count)

        assert [event.data["number"] async for event in alice.events()] == list(range(count))
        assert len(upstream.streams) == 1


def count_pauses(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often reading a response has begun to wait for space in the queue of its frames, and how often that has ended."""
    counts, wait_for_space = Counter[str](), EventFrames.wait_for_space

    async def wait_and_count(frames: EventFrames) -> None:
        counts["begun"] += 1
        await wait_for_space(frames)
        counts["ended"] += 1

    monkeypatch.setattr(EventFrames, "wait_for_space", wait_and_count)
    return counts


@pytest.mark.parametrize("is_demanded", [False, True])
async def test_a_webhook_with_a_cursor_gets_a_gap_if_the_events_after_it_were_not_recorded(
    tmp_path: Path, *, is_demanded: bool
) -> None:
    """No client demanded the events of the upstream then, so the log lacks them, and the catch-up cannot send them."""
    upstream = EventUpstream(modes=["poll"])
    async with running_with_events(tmp_path, upstream) as (ringback, phone):
        alice = await ringback.create_agent_client("alice")
        if is_demanded:
            await register(alice, phone, description="earlier")
        await alice.publish_event("order.paid", {})
        cursor = (await alice.poll_events()).cursor
        await register(alice, phone, cursor=cursor)

        kinds = [each.kind async for each in alice.deliveries()]

    assert kinds == ([] if is_demanded else ["gap"])
