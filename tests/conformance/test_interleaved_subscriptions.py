"""Units of two nodes that subscribe, refresh, end and match one event subscription at the same time."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.domain.call import Call
from ringback.domain.call_outcome import completion_from_result
from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.erasure import Erasure, ErasureKind
from ringback.domain.errors import Unauthenticated
from ringback.domain.event_rows import EventFilter
from ringback.domain.event_subscriptions import SubscriptionEnd
from ringback.domain.ids import ErasureId, KeyId, WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Scope
from ringback.domain.webhook import WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.protocol.mcp_events.backend import SubscriptionGrant, SubscriptionKey, SubscriptionRequest
from ringback.protocol.mcp_events.errors import ErrorProfile, EventError, EventErrorName
from ringback.protocol.mcp_events.grants import TtlRequest
from ringback.services.calls.reports import CallReport
from ringback.services.events.event_polls import EventRequest, read_log_start
from ringback.services.events.event_publishing import PublishedEvent
from ringback.services.events.event_types import EventTypeDeclaration
from ringback.services.services import Services
from ringback.services.webhooks.subscription_ends import (
    ABANDONED_SECONDS,
    KEY_ENDED,
    terminate_abandoned,
    terminate_batch,
    terminate_of_keys,
)
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import ALICE
from tests.support.interleaving import CALLER, Node, Nodes, open_nodes

URL: Final = "http://127.0.0.1:1/callback"
REQUEST: Final = SubscriptionRequest(
    name="call.finished",
    arguments={},
    canonical_arguments="{}",
    url=URL,
    secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    cursor=None,
    max_age_seconds=None,
    ttl=TtlRequest.SERVER_DEFAULT,
    error_profile=ErrorProfile.SKETCH,
)
REPORT: Final = CallReport(
    key="key", upstream="git", tool="git_log", completion=completion_from_result(b"{}", is_error=False)
)
KEY: Final = SubscriptionKey(name="call.finished", canonical_arguments="{}", url=URL)


@pytest.fixture
async def proven(tmp_path: Path, clock: FakeClock) -> AsyncGenerator[Nodes]:
    """Nodes that challenge no URL, so that a subscribe has one unit of work that writes."""
    async with open_nodes(tmp_path, clock, callback_allowlist=("http://127.0.0.1:1",), quota_subscriptions=2) as nodes:
        yield nodes


async def subscribe(node: Node, **over: Any) -> SubscriptionGrant:
    return await node.services.event_subscriptions.subscribe(CALLER, replace(REQUEST, **over))


async def unsubscribe(node: Node) -> None:
    await node.services.event_subscriptions.unsubscribe(CALLER, KEY)


async def report(node: Node) -> Call:
    return (await node.services.reports.record_report(CALLER, REPORT)).call


async def remove_expired(node: Node) -> None:
    await node.store.write(lambda tx: tx.webhooks.remove_expired(now=tx.now(), limit=10))


async def count_live(nodes: Nodes) -> int:
    return await nodes.first.store.read(lambda tx: tx.subscriptions.count_live(ALICE))


async def is_live(nodes: Nodes, subscription_id: str) -> bool:
    """Whether both rows say that it is, which agree."""

    async def read(tx: Transaction) -> tuple[bool, bool]:
        webhook = await tx.webhooks.get(WebhookId(subscription_id))
        subscription = await tx.subscriptions.get(WebhookId(subscription_id))
        matches = webhook is not None and webhook.state is WebhookState.ACTIVE
        return matches, subscription is not None and subscription.ended_at is None

    webhook, subscription = await nodes.first.store.read(read)
    assert webhook == subscription
    return webhook


async def count_deliveries(nodes: Nodes) -> int:
    return len(
        await nodes.first.store.scan(
            ALICE, lambda tx: tx.deliveries.list_page(ALICE, DeliveryFilter(), position=None, limit=10)
        )
    )


async def test_two_first_subscribes_with_one_key_make_one_subscription(proven: Nodes) -> None:
    one, two = await proven.interleave(subscribe, subscribe)

    assert one.id == two.id
    assert await count_live(proven) == 1


async def test_a_quota_holds_for_two_subscribes_at_once(proven: Nodes) -> None:
    await subscribe(proven.first)

    one, two = await proven.interleave(
        lambda node: subscribe(node, url=f"{URL}/1"), lambda node: subscribe(node, url=f"{URL}/2")
    )

    refused = [each for each in (one, two) if isinstance(each, EventError)]
    assert [each.name for each in refused] == [EventErrorName.RESOURCE_EXHAUSTED]
    assert await count_live(proven) == 2


@pytest.mark.parametrize("order", ["unsubscribe first", "refresh first"])
async def test_a_refresh_and_an_unsubscribe_leave_both_rows_in_agreement(proven: Nodes, order: str) -> None:
    grant = await subscribe(proven.first)
    units = (unsubscribe, subscribe) if order == "unsubscribe first" else (subscribe, unsubscribe)

    await proven.interleave(*units)

    assert await is_live(proven, grant.id) is (order == "unsubscribe first")
    assert await count_live(proven) == int(order == "unsubscribe first")


async def test_an_unsubscribe_during_the_first_subscribe_ends_it(proven: Nodes) -> None:
    grant, _ = await proven.interleave(subscribe, unsubscribe)

    assert not await is_live(proven, grant.id)
    assert await count_live(proven) == 0


async def test_a_lapsed_subscription_is_renewed_at_the_quota(proven: Nodes, clock: FakeClock) -> None:
    await subscribe(proven.first, url=f"{URL}/1")
    grant = await subscribe(proven.first, ttl=60.0)
    clock.advance(61)

    renewed = await subscribe(proven.first, ttl=60.0)

    assert renewed.id == grant.id
    assert await count_live(proven) == 2


@pytest.mark.parametrize("order", ["removal first", "refresh first"])
async def test_a_refresh_at_the_moment_of_the_expiry_begins_again(proven: Nodes, clock: FakeClock, order: str) -> None:
    grant = await subscribe(proven.first, ttl=60.0)
    clock.advance(60)
    units = (remove_expired, subscribe) if order == "removal first" else (subscribe, remove_expired)

    await proven.interleave(*units)

    assert await is_live(proven, grant.id)
    subscription = await proven.first.store.read(lambda tx: tx.subscriptions.get(WebhookId(grant.id)))
    assert subscription is not None
    assert clock.now() - subscription.created_at < timedelta(seconds=1)


@pytest.mark.parametrize("order", ["subscribe first", "call first"])
async def test_a_call_that_ends_meanwhile_is_delivered_or_before_the_cursor(proven: Nodes, order: str) -> None:
    units = (subscribe, report) if order == "subscribe first" else (report, subscribe)

    results = await proven.interleave(*units)

    (grant,) = [each for each in results if isinstance(each, SubscriptionGrant)]
    events = await proven.first.services.events.poll_events(
        CALLER, EventFilter(), cursor=grant.cursor, limit=10, wait_seconds=0
    )
    assert len(events.events) == await count_deliveries(proven) == int(order == "subscribe first")


@pytest.mark.parametrize("order", ["termination first", "refresh first"])
async def test_a_termination_and_a_refresh_lock_in_one_order(proven: Nodes, clock: FakeClock, order: str) -> None:
    grant = await subscribe(proven.first)

    recorder = Engine(proven.first.store, clock).recorder

    async def terminate(node: Node) -> bool:
        return await node.store.write(lambda tx: terminate_batch(tx, recorder, {WebhookId(grant.id): KEY_ENDED}))

    units = (terminate, subscribe) if order == "termination first" else (subscribe, terminate)

    results = await proven.interleave(*units)

    assert not [each for each in results if isinstance(each, Exception)]
    assert await count_live(proven) == int(order == "termination first")


async def fail_for_a_week(nodes: Nodes, clock: FakeClock, subscription_id: str) -> None:
    async def suspend(tx: Transaction) -> None:
        webhook = await tx.webhooks.get(WebhookId(subscription_id))
        assert webhook is not None
        failing = replace(
            webhook,
            state=WebhookState.SUSPENDED,
            failing_since=clock.now() - timedelta(seconds=ABANDONED_SECONDS),
            last_error="timeout",
        )
        await tx.webhooks.update(failing, WebhookPart.STATE, WebhookPart.HEALTH)

    await nodes.first.store.write(suspend)


async def test_an_abandoned_subscription_that_is_refreshed_meanwhile_stays(proven: Nodes, clock: FakeClock) -> None:
    grant = await subscribe(proven.first, ttl=TtlRequest.NO_EXPIRY)
    await fail_for_a_week(proven, clock, grant.id)
    recorder = Engine(proven.first.store, clock).recorder

    await proven.interleave(
        lambda node: subscribe(node, ttl=TtlRequest.NO_EXPIRY),
        lambda node: node.store.write(lambda tx: terminate_abandoned(tx, recorder, position=None)),
    )

    assert await is_live(proven, grant.id)


async def test_a_subscription_that_another_key_takes_meanwhile_survives_the_end_of_its_first_key(
    proven: Nodes, clock: FakeClock
) -> None:
    keys = proven.first.services.api_keys
    first, _ = await keys.create_key(ALICE, name="first", scopes=frozenset({Scope.WEBHOOKS}), upstreams=None)
    grant = await proven.first.services.event_subscriptions.subscribe(replace(CALLER, key_id=first.id), REQUEST)
    await keys.revoke_key(first.id)
    recorder = Engine(proven.first.store, clock).recorder

    await proven.interleave(
        subscribe, lambda node: node.store.write(lambda tx: terminate_of_keys(tx, recorder, after=""))
    )

    assert await is_live(proven, grant.id)


GONE: Final = replace(CALLER, key_id=KeyId("key_01K00000000000000000000000"))
"""A caller whose key was deleted after its request was authenticated."""


async def subscribe_with_deleted_key(services: Services) -> None:
    await services.event_subscriptions.subscribe(GONE, REQUEST)


async def publish_with_deleted_key(services: Services) -> None:
    await services.event_publishing.publish_events(GONE, [PublishedEvent(name="order.paid", data={})])


async def declare_with_deleted_key(services: Services) -> None:
    await services.event_types.declare_event_type(GONE, EventTypeDeclaration(name="order.paid"))


@pytest.mark.parametrize(
    "store_something", [subscribe_with_deleted_key, publish_with_deleted_key, declare_with_deleted_key]
)
async def test_a_request_stores_nothing_for_a_key_that_was_deleted_meanwhile(
    proven: Nodes, store_something: Callable[[Services], Awaitable[None]]
) -> None:
    with pytest.raises((Unauthenticated, EventError), match="key was deleted"):
        await store_something(proven.first.services)

    assert await count_live(proven) == 0
    assert await proven.first.store.read(lambda tx: tx.event_types.list_of_principal(ALICE)) == []
    assert await proven.first.store.read(lambda tx: tx.event_log.get_head(ALICE)) == 0


async def test_an_erasure_covers_a_subscription_that_is_newer_than_its_request(proven: Nodes, clock: FakeClock) -> None:
    for number in range(2):
        clock.advance(10)
        await subscribe(proven.first, url=f"{URL}/{number}")

    erasure = Erasure(
        id=ErasureId("era_1"),
        principal=ALICE,
        kind=ErasureKind.PRINCIPAL,
        target=ALICE,
        cancels=False,
        requested_by=ALICE,
        requested_at=clock.now(),
        head=0,
        worked_at=clock.now(),
    )
    assert await proven.first.store.read(lambda tx: tx.erased_rows.newest_row_at(erasure)) == clock.now()


async def test_an_erased_subscription_has_ended_by_its_removal_now(proven: Nodes, clock: FakeClock) -> None:
    grant = await subscribe(proven.first)
    clock.advance(1)

    await proven.first.services.erasures.erase_principal(CALLER, ALICE, cancel=False)

    tombstone = await proven.first.store.read(lambda tx: tx.subscriptions.get(WebhookId(grant.id)))
    assert tombstone is not None
    assert (tombstone.end, tombstone.ended_at) == (SubscriptionEnd.REMOVED, clock.now())


async def test_a_cursor_of_another_log_starts_where_a_poll_starts(proven: Nodes) -> None:
    await report(proven.first)
    foreign = encode_log_position(LogPosition(1, "00000000"))

    grant = await subscribe(proven.first, cursor=foreign)

    request = EventRequest(event_filter=EventFilter(), cursor=foreign)
    start = await proven.first.store.scan(ALICE, lambda tx: read_log_start(tx, ALICE, request))
    assert (grant.cursor, grant.truncated) == (encode_log_position(start.position), start.is_truncated)
    assert await count_deliveries(proven) == 1
