"""Stored catalogs of upstreams, and subscriptions to their changes."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ringback.domain.change_subscriptions import (
    RESOURCE_URI_LENGTH_MAX,
    ChangeSubject,
    ChangeSubscription,
    find_change_topic,
    make_change_arguments,
)
from ringback.domain.event import EventName
from ringback.domain.event_types import EventDemand
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import PRINCIPAL_LENGTH_MAX, Principal
from ringback.domain.upstream_rows import PROFILE_PART, CatalogPart
from ringback.domain.webhook import Webhook, WebhookState
from tests.support.builders import make_identity_erasure
from tests.support.clock import START, FakeClock
from tests.support.examples import ALICE, BOB, WEBHOOK

TOOLS: list[dict[str, Any]] = [{"name": "b", "inputSchema": {"type": "object"}, "_meta": {"x": None}}, {"name": "a"}]
PART = CatalogPart(upstream="git", part="tools", body=TOOLS, fetched_at=START)


async def put_catalog(store: Store, *parts: CatalogPart) -> None:
    for part in parts:
        await store.write(lambda tx, part=part: tx.catalog.save_part(part))


async def get_catalog(store: Store) -> list[CatalogPart]:
    return list(await store.read(lambda tx: tx.catalog.list_all()))


async def test_a_part_of_a_catalog_is_read_back_as_it_was_put_last(store: Store) -> None:
    profile = replace(PART, part=PROFILE_PART, body={"instructions": None, "capabilities": {"events": {}}})
    later = replace(PART, body=[{"name": "c"}], fetched_at=START + timedelta(seconds=1))
    await put_catalog(store, PART, profile, replace(PART, upstream="time"))

    assert next(part for part in await get_catalog(store) if part.part == "tools" and part.upstream == "git") == PART
    await put_catalog(store, later)
    assert sorted(await get_catalog(store), key=lambda part: (part.upstream, part.part)) == [
        profile,
        later,
        replace(PART, upstream="time"),
    ]


async def test_stored_lists_of_removed_upstreams_are_deleted(store: Store) -> None:
    await put_catalog(store, PART, replace(PART, part=PROFILE_PART, body={}), replace(PART, upstream="time"))

    assert await store.write(lambda tx: tx.catalog.remove_other_upstreams(["time", "new"])) == 2
    assert [part.upstream for part in await get_catalog(store)] == ["time"]
    assert await store.write(lambda tx: tx.catalog.remove_other_upstreams([])) == 1
    assert await get_catalog(store) == []


# -- catalogs of single principals -------------------------------------------------------------------------------------------


async def put_owned_catalog(store: Store, owner: Principal, *parts: CatalogPart) -> None:
    for part in parts:
        await store.write_for(owner, lambda tx, part=part: tx.owned_catalog.save_part(owner, part))


async def get_owned_catalog(store: Store, owner: Principal, upstream: str = "git") -> list[CatalogPart]:
    return list(await store.read(lambda tx: tx.owned_catalog.list_parts(upstream, owner)))


async def test_a_part_of_a_principals_catalog_is_read_back_for_that_principal_only(store: Store) -> None:
    later = replace(PART, body=[{"name": "c"}], fetched_at=START + timedelta(seconds=1))
    await put_owned_catalog(store, ALICE, PART, later, replace(PART, upstream="time"))
    await put_owned_catalog(store, BOB, PART)

    assert await get_owned_catalog(store, ALICE) == [later]
    assert await get_owned_catalog(store, BOB) == [PART]
    assert await get_owned_catalog(store, Principal("carol")) == []
    assert await get_catalog(store) == []


async def test_catalogs_of_principals_are_removed_with_their_upstream_and_by_age(store: Store) -> None:
    old = replace(PART, part=PROFILE_PART, body={}, fetched_at=START - timedelta(days=1))
    for owner in (ALICE, BOB):
        await put_owned_catalog(store, owner, PART, old, replace(PART, upstream="time"))

    assert await store.write(lambda tx: tx.owned_catalog.remove_old(cutoff=START, limit=1)) == 1
    assert await store.write(lambda tx: tx.owned_catalog.remove_old(cutoff=START, limit=10)) == 1
    assert await get_owned_catalog(store, ALICE) == [PART]
    assert await store.read(lambda tx: tx.owned_catalog.list_upstreams()) == ["git", "time"]
    assert await store.write(lambda tx: tx.owned_catalog.remove_upstream("git", limit=1)) == 1
    assert await store.write(lambda tx: tx.owned_catalog.remove_upstream("git", limit=10)) == 1
    assert await store.read(lambda tx: tx.owned_catalog.list_upstreams()) == ["time"]


async def test_the_lists_of_one_upstream_and_of_one_owner_are_deleted_alone(store: Store) -> None:
    await put_catalog(store, PART, replace(PART, upstream="time"))
    for owner in (ALICE, BOB):
        await put_owned_catalog(store, owner, PART, replace(PART, upstream="time"))

    assert await store.write(lambda tx: tx.catalog.remove_upstream("git")) == 1
    assert [part.upstream for part in await get_catalog(store)] == ["time"]
    assert await store.write_for(ALICE, lambda tx: tx.owned_catalog.remove_owned("git", ALICE)) == 1
    assert await get_owned_catalog(store, ALICE) == []
    assert await get_owned_catalog(store, ALICE, "time") == [replace(PART, upstream="time")]
    assert await get_owned_catalog(store, BOB) == [PART]


async def test_an_erased_principal_has_no_catalog(store: Store) -> None:
    await put_owned_catalog(store, ALICE, PART, replace(PART, upstream="time"))
    await put_owned_catalog(store, BOB, PART)
    erasure = make_identity_erasure(ALICE)

    assert await store.write(lambda tx: tx.erased_deliveries.delete_identity(erasure, limit=1)) == 1
    assert await store.write(lambda tx: tx.erased_deliveries.delete_identity(erasure, limit=10)) == 1
    assert await get_owned_catalog(store, ALICE) == await get_owned_catalog(store, ALICE, "time") == []
    assert await get_owned_catalog(store, BOB) == [PART]


# -- subscriptions to changes ------------------------------------------------------------------------------------------------

SUBSCRIBED_EVENTS = replace(WEBHOOK, events=frozenset({EventName.UPSTREAM_CHANGED}), upstream="git")


async def register_webhook(store: Store, *webhooks: Webhook) -> None:
    for number, webhook in enumerate(webhooks):
        numbered = replace(webhook, id=WebhookId(f"{WEBHOOK.id[:-2]}{number:02}"))
        await store.write(lambda tx, webhook=numbered: tx.webhooks.insert(webhook))


async def list_change_subscriptions(store: Store, clock: FakeClock) -> list[ChangeSubscription]:
    return list(await store.read(lambda tx: tx.change_subscriptions.list_all(now=clock.now())))


async def test_a_principal_has_one_change_subscription_per_resource_or_list(store: Store, clock: FakeClock) -> None:
    both = replace(SUBSCRIBED_EVENTS, events=frozenset(EventName))
    book = replace(SUBSCRIBED_EVENTS, resource_uri="book://1")
    await register_webhook(store, SUBSCRIBED_EVENTS, both, book, book, replace(book, principal=BOB), WEBHOOK)

    assert await list_change_subscriptions(store, clock) == [
        ChangeSubscription(principal=ALICE, upstream="git", resource_uri=None),
        ChangeSubscription(principal=ALICE, upstream="git", resource_uri="book://1"),
        ChangeSubscription(principal=BOB, upstream="git", resource_uri="book://1"),
    ]


async def test_webhooks_without_upstream_change_events_have_no_change_subscriptions(
    store: Store, clock: FakeClock
) -> None:
    soon = START + timedelta(seconds=5)
    await register_webhook(
        store,
        replace(SUBSCRIBED_EVENTS, state=WebhookState.DISABLED),
        replace(SUBSCRIBED_EVENTS, state=WebhookState.SUSPENDED, principal=BOB),
        replace(SUBSCRIBED_EVENTS, expires_at=soon),
    )

    assert [watch.principal for watch in await list_change_subscriptions(store, clock)] == [ALICE, BOB]
    clock.advance(5)
    assert [watch.principal for watch in await list_change_subscriptions(store, clock)] == [BOB]


@pytest.mark.parametrize("odd", ["book://\0", "book://\0\0", "\\\0", "\\\\\0"])
async def test_a_demand_for_a_uri_with_u_0000_hides_no_other_one(store: Store, clock: FakeClock, odd: str) -> None:
    plain = ["book://1", r"book://\u0000", "book://\\\\u0000"]
    for uri in (odd, *plain):
        demand = EventDemand(
            principal=BOB,
            event_name=EventName.UPSTREAM_CHANGED,
            topic=uri.replace("\0", "zero"),
            arguments={"upstream": "git", "uri": uri},
            polled_until=START + timedelta(seconds=5),
        )
        await store.write(lambda tx, demand=demand: tx.event_demands.save(demand))

    listed = {each.resource_uri for each in await list_change_subscriptions(store, clock)}

    assert listed >= set(plain)


async def test_a_demand_of_a_poller_is_a_change_subscription_until_its_end(store: Store, clock: FakeClock) -> None:
    for uri in (None, "book://1"):
        arguments = {"upstream": "git"} if uri is None else {"upstream": "git", "uri": uri}
        demand = EventDemand(
            principal=BOB,
            event_name=EventName.UPSTREAM_CHANGED,
            topic=str(uri),
            arguments=arguments,
            polled_until=START + timedelta(seconds=5),
        )
        await store.write(lambda tx, demand=demand: tx.event_demands.save(demand))

    assert await list_change_subscriptions(store, clock) == [
        ChangeSubscription(principal=BOB, upstream="git", resource_uri=None),
        ChangeSubscription(principal=BOB, upstream="git", resource_uri="book://1"),
    ]
    assert await store.read(lambda tx: tx.event_demands.list_current(now=clock.now())) == []
    clock.advance(5)
    assert await list_change_subscriptions(store, clock) == []


async def test_the_longest_uri_of_the_longest_name_is_watched(store: Store, clock: FakeClock) -> None:
    """PostgreSQL refuses long entries of an index. Letters at random are not compressed."""
    letters = random.Random(7)
    uri = "".join(chr(letters.randrange(0x21, 0x7F)) for _ in range(RESOURCE_URI_LENGTH_MAX))
    principal = Principal("".join(chr(letters.randrange(0x20000, 0x2A000)) for _ in range(PRINCIPAL_LENGTH_MAX)))
    upstream = "u" * 24
    await register_webhook(store, replace(SUBSCRIBED_EVENTS, principal=principal, upstream=upstream, resource_uri=uri))

    watched = await store.read(lambda tx: tx.change_subscriptions.list_watched_resources(upstream, now=clock.now()))

    assert list(watched) == [make_subscription(principal, uri, upstream)]


DEMANDED = "book://demanded"
UNPRINTABLE = "book://\u200d\x01"
"""MCP clients may name it in events/subscribe, and each upstream in a notification."""


def make_change_demand(principal: Principal, uri: str | None) -> EventDemand:
    return EventDemand(
        principal=principal,
        event_name=EventName.UPSTREAM_CHANGED,
        topic=find_change_topic("git", uri),
        arguments=make_change_arguments("git", uri),
        polled_until=START + timedelta(seconds=5),
    )


async def watch_resources(store: Store) -> None:
    """Alice and two others watch one book each alone and one together, and two of them demand one; some watch no more."""
    book = replace(SUBSCRIBED_EVENTS, resource_uri="book://1")
    soon = START + timedelta(seconds=5)
    await register_webhook(
        store,
        SUBSCRIBED_EVENTS,
        *(replace(book, principal=each) for each in (BOB, ALICE, Principal("carol"), ALICE, BOB)),
        replace(book, resource_uri="book://2"),
        replace(book, resource_uri="book://3", principal=BOB),
        replace(book, resource_uri="book://off", state=WebhookState.DISABLED),
        replace(book, resource_uri="book://soon", expires_at=soon),
        replace(book, upstream="time"),
        replace(book, resource_uri=UNPRINTABLE),
    )
    for demand in (
        make_change_demand(BOB, DEMANDED),
        make_change_demand(ALICE, DEMANDED),
        make_change_demand(BOB, None),
    ):
        await store.write(lambda tx, demand=demand: tx.event_demands.save(demand))


def make_subscription(principal: Principal, uri: str | None, upstream: str = "git") -> ChangeSubscription:
    return ChangeSubscription(principal=principal, upstream=upstream, resource_uri=uri)


@pytest.mark.parametrize("later", [False, True])
async def test_one_subscription_is_found_as_it_is_among_all(store: Store, clock: FakeClock, *, later: bool) -> None:
    await watch_resources(store)
    clock.advance(5 * later)
    uris = [
        None,
        "book://1",
        "book://2",
        "book://3",
        "book://off",
        "book://soon",
        DEMANDED,
        UNPRINTABLE,
        "book://none",
        "x" * 9000,
    ]
    wanted = [
        make_subscription(principal, uri, upstream)
        for principal in (ALICE, BOB, Principal("carol"), Principal("dave"))
        for uri in uris
        for upstream in ("git", "time")
    ]

    async def select_found(tx: Transaction) -> list[ChangeSubscription]:
        return [each for each in wanted if await tx.change_subscriptions.has_subscription(each, now=tx.now())]

    found = await store.read(select_found)

    listed = await list_change_subscriptions(store, clock)
    assert len(found) == len(listed)
    assert all(each in listed for each in found)


@pytest.mark.parametrize("later", [False, True])
async def test_the_subscriptions_to_some_subjects_are_those_among_all(
    store: Store, clock: FakeClock, *, later: bool
) -> None:
    await watch_resources(store)
    clock.advance(5 * later)
    subjects = {ChangeSubject("git", uri) for uri in (None, "book://1", "book://off", "book://soon", DEMANDED)}
    subjects.add(ChangeSubject("git", UNPRINTABLE))
    unwatched = {ChangeSubject("git", uri) for uri in ("book://\0", "book://\ud800", "x" * 9000)}

    found = await store.read(lambda tx: tx.change_subscriptions.list_of_subjects(subjects | unwatched, now=clock.now()))

    listed = await list_change_subscriptions(store, clock)
    expected = [each for each in listed if (each.upstream, each.resource_uri) in subjects]
    assert len(found) == len(expected)
    assert all(each in expected for each in found)
    assert await store.read(lambda tx: tx.change_subscriptions.list_of_subjects([], now=clock.now())) == []


@pytest.mark.parametrize("later", [False, True])
async def test_the_watched_resources_of_an_upstream_show_whether_more_than_one_principal_watches_each(
    store: Store, clock: FakeClock, *, later: bool
) -> None:
    await watch_resources(store)
    clock.advance(5 * later)

    watched = await store.read(lambda tx: tx.change_subscriptions.list_watched_resources("git", now=clock.now()))

    def count_watchers(subscriptions: Iterable[ChangeSubscription]) -> dict[str | None, int]:
        """At most two count."""
        counts = Counter({(each.principal, each.resource_uri) for each in subscriptions})
        by_uri = Counter(uri for _, uri in counts)
        return {uri: min(2, number) for uri, number in by_uri.items()}

    listed = await list_change_subscriptions(store, clock)
    of_git = [each for each in listed if each.upstream == "git" and each.resource_uri is not None]
    assert all(each in of_git for each in watched)
    assert count_watchers(watched) == count_watchers(of_git)
