"""External events in the log, the demand for those of upstreams, and the types that principals publish."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.domain.event import Event, EventName, ExternalEvent, build_external_event
from ringback.domain.event_rows import EventFilter
from ringback.domain.event_types import EventDemand, EventFollowing, PublishedEventType
from ringback.domain.ids import EventId, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookState, matches_event
from tests.support.builders import make_webhook
from tests.support.clock import START
from tests.support.event_demands import remove_ended_demands
from tests.support.examples import ALICE, BOB, EVENT

PUSHED = "git/pushed"
LATER = START + timedelta(seconds=60)
EXTERNAL = replace(
    EVENT,
    id=EventId("git:e1"),
    name=PUSHED,
    call_id=None,
    tool=None,
    occurred_at=START - timedelta(seconds=5),
    topic="t1",
    data={"n": 1},
)


async def append(store: Store, *events: Event) -> None:
    for event in events:

        async def work(tx: Transaction, event: Event = event) -> None:
            seq = await tx.events.reserve_seqs(event.principal, 1)
            await tx.events.insert([replace(event, seq=seq)])

        await store.write(work)


async def list_names(store: Store, where: EventFilter) -> list[str]:
    return [event.id for event in await store.read(lambda tx: tx.events.list_page(ALICE, 0, where, limit=10))]


async def test_an_external_event_is_read_back_with_its_own_time_and_topic(store: Store) -> None:
    await append(store, EXTERNAL)

    (event,) = await store.read(lambda tx: tx.events.list_page(ALICE, 0, EventFilter(name=PUSHED), limit=10))

    assert event == replace(EXTERNAL, seq=1)
    assert event.timestamp == EXTERNAL.occurred_at


async def test_an_event_of_the_last_microsecond_of_the_calendar_leaves_the_log_readable(store: Store) -> None:
    late = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    external = ExternalEvent(name=PUSHED, id=EventId("git:late"), data={}, occurred_at=late)
    built = build_external_event(ALICE, external, event_id=EventId("git:late"), seq=1, now=START)
    await append(store, built)

    (event,) = await store.read(lambda tx: tx.events.list_page(ALICE, 0, EventFilter(), limit=10))

    assert event == built
    assert event.occurred_at == late.replace(microsecond=999_000)


async def test_events_of_a_topic_are_listed_apart_from_those_of_others_and_of_none(store: Store) -> None:
    await append(
        store,
        EXTERNAL,
        replace(EXTERNAL, id=EventId("git:e2"), topic="t2"),
        replace(EXTERNAL, id=EventId("git:e3"), topic=None),
    )

    assert await list_names(store, EventFilter(name=PUSHED, topic="t1")) == ["git:e1"]
    assert await list_names(store, EventFilter(name=PUSHED, topic="")) == ["git:e3"]
    assert await list_names(store, EventFilter(name=PUSHED)) == ["git:e1", "git:e2", "git:e3"]


async def test_a_known_id_is_found_for_its_principal_and_topic_only(store: Store) -> None:
    await append(store, EXTERNAL, replace(EVENT, id=EventId("evt_own"), name=EventName.CALL_FINISHED))

    async def find(principal: Principal, topic: str | None) -> set[str]:
        ids = [EventId("git:e1"), EventId("evt_own"), EventId("git:none")]
        return set(await store.read(lambda tx: tx.events.find_known_ids(principal, ids, topic=topic)))

    assert await find(ALICE, "t1") == {"git:e1"}
    assert await find(ALICE, None) == set()
    assert await find(BOB, "t1") == set()


# -- demand -----------------------------------------------------------------------------------------------------------------


def make_demand(principal: Principal = ALICE, *, topic: str = "", until: datetime = START) -> EventDemand:
    return EventDemand(
        principal=principal, event_name=PUSHED, topic=topic, arguments={"repo": topic}, polled_until=until
    )


async def save(store: Store, *demands: EventDemand) -> None:
    for demand in demands:
        await store.write(lambda tx, demand=demand: tx.event_demands.save(demand))


async def insert(store: Store, *webhooks: Webhook) -> None:
    for webhook in webhooks:
        await store.write(lambda tx, webhook=webhook: tx.webhooks.insert(webhook))


async def list_current(store: Store, now: datetime = LATER) -> list[tuple[str, str]]:
    current = await store.read(lambda tx: tx.event_demands.list_current(now=now))
    return [(demand.principal, demand.topic) for demand in current]


@pytest.mark.parametrize("outcome", ["a\0b", {"nested": "\0"}, ["rejected"], "rejected", 7])
async def test_an_event_finds_its_webhooks_whatever_its_data_has_as_outcome(store: Store, outcome: Any) -> None:
    webhook = make_webhook(
        events=frozenset({PUSHED, EventName.CALL_FINISHED}), outcomes=frozenset({CallOutcome.RESULT})
    )
    await store.write(lambda tx: tx.webhooks.insert(webhook))
    event = replace(EXTERNAL, topic=None, data={"outcome": outcome}, seq=1)

    (found,) = await store.write(lambda tx: tx.webhooks.find_candidates([event], catching_up=False))
    receivers = await store.write(lambda tx: tx.log_appends.find_receivers([event]))

    assert [each.id for each in found] == [webhook.id]
    assert [each.id for each in receivers.webhooks[ALICE, 1]] == [webhook.id]
    assert matches_event(webhook, event, now=START)


async def test_a_pollers_demand_ends_at_its_time_and_never_ends_earlier(store: Store) -> None:
    await save(store, make_demand(until=LATER + timedelta(seconds=1)), make_demand(until=START))

    assert await list_current(store) == [(ALICE, "")]
    assert await list_current(store, LATER + timedelta(seconds=1)) == []


async def test_a_webhooks_demand_lasts_as_long_as_the_webhook_can_receive(store: Store) -> None:
    subscribed = make_webhook(events=frozenset({PUSHED}), topic="t1")
    await save(store, make_demand(topic="t1"), make_demand(topic="t2"), make_demand(BOB, topic="t1"))
    await insert(store, subscribed)
    assert await list_current(store) == [(ALICE, "t1")]

    await store.write(lambda tx: tx.webhooks.delete(subscribed.id))
    assert await list_current(store) == []


async def test_webhooks_that_are_disabled_expired_or_of_another_event_are_no_demand(store: Store) -> None:
    await save(store, make_demand())
    await insert(
        store,
        make_webhook(events=frozenset({PUSHED}), state=WebhookState.DISABLED),
        make_webhook(events=frozenset({PUSHED}), expires_at=START),
        make_webhook(events=frozenset({"git/other"})),
    )

    assert await list_current(store) == []


async def test_one_of_the_current_demands_with_each_topic_is_listed(store: Store) -> None:
    until = LATER + timedelta(seconds=1)
    await save(
        store,
        *(make_demand(principal, topic=topic, until=until) for principal in (ALICE, BOB) for topic in ("t1", "t2")),
        make_demand(topic="ended"),
    )

    different = await store.read(lambda tx: tx.event_demands.list_different(now=LATER))

    assert [(each.topic, each.arguments) for each in different] == [("t1", {"repo": "t1"}), ("t2", {"repo": "t2"})]


async def test_ended_demands_and_their_followings_are_removed(store: Store) -> None:
    await save(store, make_demand(topic="t1"), make_demand(topic="t2", until=LATER + timedelta(seconds=1)))
    for topic in ("t1", "t2"):
        following = EventFollowing(event_name=PUSHED, topic=topic, cursor="7", updated_at=START)
        await store.write(lambda tx, following=following: tx.event_followings.save(following))

    assert await remove_ended_demands(store, now=LATER) == 1

    assert await store.read(lambda tx: tx.event_followings.get(PUSHED, "t1")) is None
    assert await store.read(lambda tx: tx.event_followings.get(PUSHED, "t2")) is not None
    assert await store.read(lambda tx: tx.event_demands.get(ALICE, PUSHED, "t1")) is None
    assert await store.read(lambda tx: tx.event_demands.count_of_principal(ALICE)) == 1


async def test_the_principals_of_a_following_are_those_with_current_demand_in_their_order(store: Store) -> None:
    subscribed = make_webhook(events=frozenset({PUSHED}), topic="t1", principal=ALICE, id=WebhookId("wh_1"))
    await insert(store, subscribed)
    await save(
        store,
        make_demand(BOB, topic="t1", until=LATER + timedelta(seconds=1)),
        make_demand(ALICE, topic="t1"),
        make_demand(Principal("carol"), topic="t1"),
    )

    principals = await store.read(lambda tx: tx.event_demands.list_principals(PUSHED, "t1", now=LATER))

    assert principals == sorted([ALICE, BOB])


# -- published types --------------------------------------------------------------------------------------------------------


async def test_a_published_type_is_replaced_listed_and_removed(store: Store) -> None:
    paid = PublishedEventType(
        principal=ALICE,
        name="order.paid",
        description="d",
        payload_schema={"type": "object"},
        created_at=START,
        updated_at=START,
    )
    changed = replace(paid, description="e", payload_schema=True, updated_at=LATER)
    for each in (paid, replace(paid, name="order.late"), replace(paid, principal=BOB), changed):
        await store.write(lambda tx, each=each: tx.event_types.save(each))

    assert await store.read(lambda tx: tx.event_types.get(ALICE, "order.paid")) == changed
    listed = await store.read(lambda tx: tx.event_types.list_of_principal(ALICE))
    assert [each.name for each in listed] == ["order.late", "order.paid"]

    assert await store.write(lambda tx: tx.event_types.remove(ALICE, "order.paid"))
    assert not await store.write(lambda tx: tx.event_types.remove(ALICE, "order.paid"))
    assert await store.read(lambda tx: tx.event_types.get(BOB, "order.paid")) is not None
